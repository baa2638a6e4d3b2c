"""What a program edits, and packages that it adds, on machines of their own: hosts in network
namespaces.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from helpers import netns
from helpers.remote import run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.usefixtures("_process_test"),
    pytest.mark.skipif(netns.why_not() is not None, reason=str(netns.why_not())),
]


def test_what_is_edited_and_a_wheel_that_is_added_run_over_a_network(tmp_path: Path) -> None:
    run(
        """
        import asyncio
        from pathlib import Path
        from helpers.wheels import make_wheel
        from monarch.actor import Actor
        from monarch.environments import in_environment

        class Importer(Actor):
            @endpoint
            def values(self, *modules: str) -> list:
                import importlib
                return [importlib.import_module(each).VALUE for each in modules]

        def values(hosts, *modules):
            with hosts.spawn_procs() as procs:
                return list(procs.spawn("importer", Importer).values.call(*modules).get().values())

        folder = Path(HERE, "project")
        folder.mkdir()
        os.environ.update(XDG_CACHE_HOME=HERE + "/cache", MONARCH_SYNC_FOLDER=HERE + "/store")
        (folder / "edited_there.py").write_text("VALUE = 1")
        with machines(2, 0) as (network, w, hosts, _, _):
            assert asyncio.run(hosts.sync_workspace(folder)).hosts == 2
            assert values(hosts, "edited_there") == [[1], [1]]
            (folder / "edited_there.py").write_text("VALUE = 22")
            make_wheel(folder / "wheels", "tiny_one", "1.0")
            (folder / "requirements.txt").write_text("tiny_one")
            assert asyncio.run(hosts.sync_workspace(folder)).sent_files == 3
            ready = in_environment(hosts, "requirements.txt", wheels="wheels", offline=True)
            assert values(ready, "edited_there", "tiny_one") == [[22, "1.0"], [22, "1.0"]]
        """.replace("HERE", repr(str(tmp_path)))
    )
