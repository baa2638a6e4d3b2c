"""Servers of `monarch.tools.commands`, as an RL library uses them: found by name, started if they
do not run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from helpers.jobs import Home

pytestmark = [pytest.mark.usefixtures("_process_test"), pytest.mark.timeout(180)]

LAUNCHER = """
    import asyncio, os, signal, sys
    from types import SimpleNamespace as Any
    from monarch.actor import Actor, endpoint
    from monarch.tools import commands
    from monarch.tools.config import Config
    from monarch.tools.config.workspace import Workspace
    from monarch.tools.mesh_spec import mesh_spec_from_metadata, mesh_spec_from_str, tag_as_metadata

    class Trainer(Actor):
        @endpoint
        def value(self) -> tuple[int, str]:
            import os
            from recipe import VALUE
            return VALUE, os.environ["MINE"]

    async def main() -> None:
        meshes = [mesh_spec_from_str(each) for each in ("trainers:2:cpu", "generators:1:cpu")]
        app = Any(name="", metadata={}, roles=[
            Any(name=mesh.name, image="", num_replicas=mesh.num_hosts, env={"MINE": "x"}) for mesh in meshes])
        for mesh in meshes:
            tag_as_metadata(mesh, app)
        config = Config(scheduler="local_cwd", appdef=app, workspace=Workspace({"project": ""}))
        server = await commands.get_or_create("rl", config, force_restart="again" in sys.argv)
        print("SERVER", server.server_handle, server.is_running, [mesh.num_hosts for mesh in server.meshes], server.host0("trainers"))
        assert await commands.server_ready(server.server_handle) == server
        assert server.get_mesh_spec("trainers").host_type == mesh_spec_from_metadata(app, "trainers").host_type == "cpu"
        job = commands.job_of(server.server_handle)
        print("JOB", job.apply_id)
        if "use" in sys.argv:
            procs = job.state(None).trainers.spawn_procs()
            print("VALUES", (await procs.spawn("trainer", Trainer).value.call()).values())
            await procs.stop()
        if "end" in sys.argv:
            os.kill(job._all_workers()[0].pid, signal.SIGKILL)
            while (found := await commands.server_ready(server.server_handle)).is_running:
                await asyncio.sleep(0.05)
            print("LOST", found.state.name, sum(len(mesh.hostnames) for mesh in found.meshes))
            await commands.kill_and_confirm(server.server_handle)
            print("LEFT", commands.info(server.server_handle))

    if __name__ == "__main__":
        asyncio.run(main())
"""


def test_a_server_is_started_once_found_by_its_name_and_ended(home: Home) -> None:
    (home.folder / "project").mkdir()
    (home.folder / "project" / "recipe.py").write_text("VALUE = 7\n")
    env = {
        "MONARCH_HOME": str(home.folder / "own"),
        "XDG_CACHE_HOME": str(home.folder / "cache"),
        "MONARCH_SYNC_FOLDER": str(home.folder / "store"),
    }
    said = home.run(LAUNCHER, env=env)
    assert "SERVER local_cwd:///rl True [2, 1] localhost" in said
    again = home.run(LAUNCHER, "use", "end", env=env)
    assert job(again) == job(said)
    assert "VALUES [(7, 'x'), (7, 'x')]" in again and "LEFT None" in again
    assert "LOST FAILED 2" in again


def job(said: str) -> str:
    """The id of the job, in what the program has printed."""
    return said.partition("JOB ")[2].partition("\n")[0]
