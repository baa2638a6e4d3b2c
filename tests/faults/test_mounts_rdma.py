"""Large content of mounts goes by RDMA where that leads from machine to machine: network
namespaces, with nixl (UCX over TCP).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from helpers import netns
from helpers.rdma_actors import HAS_NIXL
from helpers.remote import run

pytestmark = [
    pytest.mark.usefixtures("_process_test"),
    pytest.mark.skipif(netns.why_not() is not None, reason=str(netns.why_not())),
    pytest.mark.skipif(not HAS_NIXL, reason="goes through nixl, which is not installed"),
]


@pytest.mark.slow
def test_large_content_goes_to_memory_of_the_reader_once_a_device_is_known(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(os.urandom(20 << 20))
    run(
        """
        from pathlib import Path
        from monarch.actor import Actor
        from monarch.mounts.blocks import BLOCK
        from monarch.mounts.content import Content
        from monarch.mounts.source import FolderSource
        from monarch.mounts.view import MountView

        # it would find out that these machines are one
        os.environ["UCX_TLS"] = "tcp"

        class Noted(Content):
            def __init__(self, actor):
                super().__init__(actor)
                self.answers = []

            def read(self, *args):
                self.answers.append(super().read(*args))
                return self.answers[-1]

            def in_place(self) -> int:
                # what the other side has written to memory of this process
                data = [answer.get()[2] for answer in self.answers]
                self.answers.clear()
                return sum(len(each) for each in data if type(getattr(each, "obj", None)) is bytearray)

        class Reader(Actor):
            def __init__(self, names, content):
                self.names, self.content = names, Noted(content)

            @endpoint
            def read(self) -> tuple[bool, int]:
                def ask(what, *args):
                    return self.content.read(*args) if what == "read" else getattr(self.names, what).call_one(*args)

                file = MountView(ask, False).open("file")
                blocks = [b"".join(file.read(index * BLOCK, BLOCK)) for index in range(20)]
                return b"".join(blocks) == Path(FOLDER, "file").read_bytes(), self.content.in_place()

        knobs = {"rdma_paths": "nixl", "preload": ["nixl._api"], "channel_reconnect_timeout": "30s"}
        with machines(2, 1, **knobs) as (network, w, hosts, procs, _):
            there, here = procs.slice(hosts=0), procs.slice(hosts=1)
            names, content = (there.spawn(name, FolderSource, [FOLDER], []) for name in ("names", "content"))
            reader = here.spawn("reader", Reader, names, content)
            assert reader.read.call_one().get()[0]
            # in messages until it is known that a device leads there
            wait_until(lambda: reader.read.call_one().get()[1] > 0, what="RDMA", timeout=90)
            whole, by_rdma = reader.read.call_one().get()
            assert whole and by_rdma >= 16 << 20, by_rdma
        """.replace("FOLDER", repr(str(tmp_path))),
        timeout=240,
    )
