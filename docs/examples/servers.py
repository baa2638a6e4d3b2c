"""Servers by name, as in Monarch 0.7: `monarch.tools.commands`."""

import asyncio
import os
import tempfile
from dataclasses import dataclass, field
from typing import Any

from monarch.tools import commands
from monarch.tools.config import Config


@dataclass
class Role:
    name: str
    num_replicas: int
    env: dict[str, str] = field(default_factory=dict)


@dataclass
class App:
    roles: list[Role]
    metadata: dict[str, str] = field(default_factory=dict)


async def main() -> None:
    app: Any = App([Role("trainers", 2)])
    # region servers
    # or "slurm", with scheduler_args={"partition": "gpu"}
    config = Config(scheduler="local_cwd", appdef=app)
    server = await commands.get_or_create("training", config)  # found by its name, or started
    assert server.server_handle == "local_cwd:///training"
    trainers = commands.job_of(server.server_handle).state(None).trainers
    assert len(trainers) == server.get_mesh_spec("trainers").num_hosts == 2
    await commands.kill_and_confirm(server.server_handle)
    # endregion


with tempfile.TemporaryDirectory() as folder:
    os.environ["MONARCH_HOME"] = folder
    asyncio.run(main())
