"""Connecting to running programs, where these are of another version."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from monarch import programs
from monarch._core import plane
from monarch.programs import Program


class Refusal:
    def get(self, timeout: float) -> None:
        raise LookupError("Agent takes no control record 'DescribeHost'")


def test_a_program_of_another_version_is_said_to_be_so_and_not_to_have_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left: list[object] = []
    monkeypatch.setattr(programs, "join", lambda host, program: None)
    monkeypatch.setattr(
        plane, "current_hub", lambda: SimpleNamespace(address=SimpleNamespace(agent=None))
    )
    monkeypatch.setattr(programs, "ask", lambda hub, agent, record: Refusal())
    monkeypatch.setattr(programs, "shutdown_context", lambda *args: left.append(args))
    with pytest.raises(ConnectionError) as raised:
        programs._join(Program(7, "train.py", 0.0, False, "host"), "guest")
    assert (
        str(raised.value)
        == "program 7 (train.py) is of another version of pymonarch: Agent takes no control record"
        " 'DescribeHost'"
    )
    assert left
