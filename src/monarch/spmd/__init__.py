"""SPMD programs on proc meshes: the environment that torch.distributed reads, on every rank. Not there yet."""

from __future__ import annotations

from typing import Any, NoReturn


def _missing(name: str) -> NoReturn:
    raise NotImplementedError(
        f"monarch.spmd.{name} arrives with the jobs, which this version of pymonarch does not have yet"
    )


def setup_torch_elastic_env(
    procs: Any, master_addr: str | None = None, master_port: int | None = None, use_ipaddr: Any = None
) -> None:
    """Set the variables of torch elastic on every proc."""
    _missing("setup_torch_elastic_env")


async def setup_torch_elastic_env_async(
    procs: Any, master_addr: str | None = None, master_port: int | None = None, use_ipaddr: Any = None
) -> None:
    """As `setup_torch_elastic_env`, to be awaited."""
    _missing("setup_torch_elastic_env_async")


class SPMDActor:
    """Runs an SPMD script as one rank."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _missing("SPMDActor")
