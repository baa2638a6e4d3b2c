"""Actors may have attributes of any name; a constructor that can't succeed is not tried for ever."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from monarch.actor import Actor, SupervisionError, endpoint, this_host
from monarch.service import Service

if TYPE_CHECKING:
    from conftest import Spawn

# what a mesh has, which is all that an actor inherits, and what one may well call its own
NAMES = [
    *(name for name in dir(Actor) if not name.startswith("__")),
    "stop", "initialized", "rank", "mesh", "name", "context", "actor", "call", "_name", "_shape",
    "_context", "_instance", "say",
]  # fmt: skip


class Named(Actor):
    def __init__(self, names: list[str]) -> None:
        for name in names:
            setattr(self, name, f"my {name}")

    @endpoint
    def say(self) -> dict[str, Any]:
        return vars(self)

    @endpoint
    def then(self, name: str) -> Any:
        return getattr(self, name)


def test_an_actor_may_have_an_attribute_of_any_name(spawn: Spawn) -> None:
    assert {"sizes", "extent", "size", "slice", "logger"} <= set(NAMES)
    named = spawn(2).spawn("named", Named, NAMES)
    own = {name: f"my {name}" for name in NAMES}
    assert named.say.call().get().values() == [own, own]
    assert named.then.call("sizes").get().values() == ["my sizes"] * 2
    assert named.sizes == {"gpus": 2}
    assert named.slice(gpus=1).then.call_one("extent").get() == "my extent"
    assert vars(Named(NAMES)) == own


def test_an_actor_that_has_set_none_says_that_it_is_no_mesh() -> None:
    for name in ("sizes", "extent", "_labels", "_ndslice"):
        with pytest.raises(NotImplementedError, match="Named is not a mesh"):
            getattr(Named([]), name)


class Broken(Actor):
    """One with a constructor that fails, in a way that its file of attempts says how often."""

    def __init__(self, attempts: str, error: type[Exception]) -> None:
        with Path(attempts).open("a") as file:
            file.write("tried\n")
        raise error("the constructor has a bug")

    @endpoint
    def say(self) -> None: ...


@pytest.mark.parametrize(("error", "tries"), [(AttributeError, 2), (ConnectionError, 4)])
def test_a_service_gives_up_a_constructor_that_fails_alike_twice(
    error: type[Exception], tries: int, tmp_path: Path
) -> None:
    attempts = tmp_path / "attempts"
    service = Service(this_host(), Broken, (str(attempts), error), name="broken", max_restarts=3)
    with pytest.raises(SupervisionError, match="the constructor has a bug"):
        service.say.call_one().get()
    assert attempts.read_text().split() == ["tried"] * tries
    (status,) = service.status().get()
    assert (status.state, status.restarts) == ("given up", tries - 1)
    assert f"{error.__name__}: the constructor has a bug" in status.last_failure
    service.stop().get()
