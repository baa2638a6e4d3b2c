"""Many cases in one test: a seed is no test of its own, but the one that fails is told.

@for_each("seed", range(100))
def test_what_is_sent_arrives(seed: int) -> None: ...
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

SHOWN = 10


def for_each(names: str, cases: Iterable[Any]) -> Callable[[Callable[..., None]], Any]:
    """As `pytest.mark.parametrize`, in one test: it goes through all cases, and says which failed.

    Fixtures are made once, so they are not for what a case changes.

    Args:
        names: Of one argument, or of several with commas in between.
        cases: A value each, or a tuple of as many as there are names.

    Returns:
        A decorator, which may stand above another.
    """
    arguments = [name.strip() for name in names.split(",")]
    cases = list(cases)
    assert cases, f"nothing to go through for {names}"

    def decorate(test: Callable[..., None]) -> Any:
        def each(**fixtures: Any) -> None:
            failed: list[tuple[str, Exception]] = []
            for case in cases:
                values = dict(zip(arguments, [case] if len(arguments) == 1 else case, strict=True))
                try:
                    test(**fixtures, **values)
                except Exception as error:
                    told = ", ".join(f"{name}={value!r}" for name, value in values.items())
                    failed.append((told, error))
            if failed:
                first, reason = failed[0]
                others = [told for told, _ in failed[1:SHOWN]]
                raise AssertionError(
                    f"{len(failed)} of {len(cases)} fail, first {first}: {reason}\n"
                    + "\n".join(["the others:", *others] if others else [])
                ) from reason

        names = [name for name in inspect.signature(test).parameters if name not in arguments]
        return disguised(each, test, names)

    return decorate


def disguised(
    stand_in: Callable[..., None], test: Callable[..., None], names: Iterable[str]
) -> Any:
    """Have pytest take a function for a test, with parameters of these names."""
    signature, kind = inspect.signature(test), inspect.Parameter.POSITIONAL_OR_KEYWORD
    stand_in.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[
            signature.parameters.get(name) or inspect.Parameter(name, kind) for name in names
        ]
    )
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(stand_in, name, getattr(test, name))
    stand_in.pytestmark = getattr(test, "pytestmark", [])  # type: ignore[attr-defined]
    return stand_in
