"""Real processes, to which a peer that was let in says anything, for some seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fuzz.inputs import run_plain
from fuzz.live import live, targets
from monarch._core.wire.frame import SEGMENT

SEED = 20261129

pytestmark = [
    pytest.mark.processes("a proc, an agent and the gateway of a host"),
    pytest.mark.may_keep("descriptors", "threads"),  # of links to hosts that were shut down
]


@pytest.fixture(autouse=True)
def _processes() -> Iterator[None]:
    yield
    live.close()


def test_no_bytes_of_a_peer_that_is_in_end_a_process_or_keep_it_from_others() -> None:
    for target in targets():
        run_plain(target, SEED, 60)


def test_a_frame_whose_memory_is_missing_ends_no_process_to_which_it_is_passed_on() -> None:
    """The process took its agent for broken, and was ended."""
    for data in live.samples_of_links(SEGMENT):
        live.check_gateway(data)
