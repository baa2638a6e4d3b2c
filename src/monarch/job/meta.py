"""Jobs on Meta's own scheduler: as in Monarch 0.7, importing this fails outside of Meta."""

raise ImportError(
    "monarch.job.meta is for MAST, Meta's own scheduler; elsewhere use another job of monarch.job:"
    " SlurmJob, KubernetesJob, RayJob, SkyPilotJob of monarch.job.skypilot, hosts_from_config, or"
    " ProcessJob on this machine"
)
