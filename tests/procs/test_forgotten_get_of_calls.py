"""Calls of which the last step is forgotten: `get()`, or the adverb before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from helpers.actors import Echo

if TYPE_CHECKING:
    from conftest import Spawn

pytestmark = pytest.mark.both


def test_a_call_without_get_names_the_call_and_get(spawn: Spawn) -> None:
    echo = spawn(2).spawn("echo", Echo)
    answers: Any = echo.say.call(1)
    with pytest.raises(AttributeError, match=r"attribute 'values'.*`future\.get\(\)`.*echo\.say"):
        answers.values()
    with pytest.raises(TypeError, match=r"`future\.get\(\)`.*echo\.say"):
        dict(answers)
    assert answers.get().values() == [1, 1]


def test_a_stream_and_an_endpoint_that_are_taken_for_results_say_how_to_read(spawn: Spawn) -> None:
    echo = spawn(2).spawn("echo", Echo)
    stream: Any = echo.say.stream(1)
    with pytest.raises(
        AttributeError, match=r"no attribute 'get'.*for future in .*future\.get\(\)"
    ):
        stream.get()
    assert [future.get() for future in stream] == [1, 1]
    say: Any = echo.say
    with pytest.raises(TypeError, match=r"echo\.say\.call\("):
        for _ in say:
            pass
    with pytest.raises(TypeError, match=r"echo\.say\.call\("):
        say[0]
    with pytest.raises(AttributeError, match="no adverb 'get'; they are call"):
        say.get()
