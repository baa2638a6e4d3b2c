"""Named tuples of this package behave as those of `typing`."""

from __future__ import annotations

import inspect
import pickle
import typing

import pytest

from monarch._namedtuple import NamedTuple


class Ours(NamedTuple):
    """What it is."""

    name: str
    rank: int = 0
    # as what is imported for type checkers only
    of: NotThere | None = None  # type: ignore[name-defined]  # noqa: F821

    @property
    def label(self) -> str:
        return f"{self.name}[{self.rank}]"


class Theirs(typing.NamedTuple):
    """What it is."""

    name: str
    rank: int = 0
    of: NotThere | None = None  # type: ignore[name-defined]  # noqa: F821

    @property
    def label(self) -> str:
        return f"{self.name}[{self.rank}]"


def test_fields_defaults_and_signature_are_those_of_typing() -> None:
    assert Ours._fields == Theirs._fields
    assert Ours._field_defaults == Theirs._field_defaults
    assert inspect.signature(Ours).parameters.keys() == inspect.signature(Theirs).parameters.keys()
    assert Ours.__doc__ == Theirs.__doc__
    assert (Ours.__module__, Ours.__qualname__) == (__name__, "Ours")


def test_it_has_its_methods_and_is_a_tuple() -> None:
    assert Ours("a", rank=2).label == "a[2]"
    assert Ours("a", 2) == ("a", 2, None)
    assert Ours("a")._replace(rank=1) == Ours("a", 1)
    with pytest.raises(TypeError):
        Ours()  # type: ignore[call-arg]  # that is the test


def test_it_can_be_pickled() -> None:
    again = pickle.loads(pickle.dumps(Ours("a", 3)))
    assert type(again) is Ours
    assert again == Ours("a", 3)


class Nothing(NamedTuple):
    """Has no fields."""


def test_one_without_fields_can_be_made_copied_and_pickled() -> None:
    assert (Nothing(), repr(Nothing()), pickle.loads(pickle.dumps(Nothing()))) == (
        (),
        "Nothing()",
        (),
    )
    with pytest.raises(TypeError):
        Nothing(1)  # type: ignore[call-arg]  # that is the test


def test_fields_that_it_has_not_are_refused_as_typing_does() -> None:
    for kind in (Ours, Theirs):
        with pytest.raises((ValueError, TypeError), match="far"):
            kind("a")._replace(far=1)  # type: ignore[call-arg]  # that is the test
        with pytest.raises(TypeError, match="far"):
            kind("a", far=1)  # type: ignore[call-arg]  # that is the test
        with pytest.raises(TypeError, match="3 arguments"):
            kind._make(["a"])
        assert kind("a", 2)._asdict() == {"name": "a", "rank": 2, "of": None}
    assert repr(Ours("a")).removeprefix("Ours") == repr(Theirs("a")).removeprefix("Theirs")
