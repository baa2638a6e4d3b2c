"""The description of a job on nodes of a cloud. It is not started here."""

from monarch.job.skypilot import SkyPilotJob

# region job
job = SkyPilotJob(
    {"trainers": 4},
    {"infra": "aws", "accelerators": "H100:8"},  # the arguments of sky.Resources
    setup_commands="pip install pymonarch torch",
    idle_limit=600,
    idle_minutes_to_autostop=10,
)
# trainers = job.state().trainers
# endregion
assert not job.active
