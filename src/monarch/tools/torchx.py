"""Names of the API by which Monarch once started servers with torchx. They can be imported; used, they say what to do instead."""

from __future__ import annotations

from typing import Any, NoReturn

JOBS = (
    "describe the hosts as a job of `monarch.job` (ProcessJob, hosts_from_config, a JobTrait of your own) and take job.state(), or "
    "start `monarch worker` on each host and attach them: attach_to_workers(workers=[...])"
)


def refuse(name: str, instead: str = JOBS) -> NoReturn:
    """Say what to use instead of `name`."""
    raise NotImplementedError(
        f"monarch.tools.{name} started servers by way of torchx, which is not supported; {instead}"
    )


class Refused:
    """Base of classes of that API."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        module = type(self).__module__.removeprefix("monarch.tools.")
        refuse(f"{module}.{type(self).__name__}")
