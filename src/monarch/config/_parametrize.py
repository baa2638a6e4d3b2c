"""Decorators that run a pytest test once per setting.

The modules `pytest` and `inspect` are imported when one is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ._kinds import text_of
from ._store import STORE, keep_all

if TYPE_CHECKING:
    import inspect
    from collections.abc import Callable, Collection, Iterable, Sequence

    TestFunction = TypeVar("TestFunction", bound=Callable[..., Any])

_PARAMETER = "_config_overrides"


def parametrize_config(**sets: Collection[object]) -> Callable[[TestFunction], TestFunction]:
    """Run the decorated test once per combination of the settings, each inside `configured`.

        @parametrize_config(proc_spawn_method={"fork", "exec"}, prefix_with_rank={True, False})
        def test_output(): ...    # runs four times

    The test gains a parameter `_config_overrides`, the first one (after `self`), which the body
    does not see. Works for sync and async tests. Sets are run in the order of their values' texts,
    other collections in their own order.

    Args:
        **sets: for each configuration key, the values to try.

    Returns:
        The decorator.

    Raises:
        ValueError: no key at all, or one that does not exist.
        TypeError: a value that `configure` would refuse, or a text where a collection of values
            belongs.
    """
    from itertools import product

    columns = _columns("parametrize_config", sets)
    return _parametrized(columns, product(*columns.values()))


def parametrize_config_pointwise(
    **sequences: Sequence[object],
) -> Callable[[TestFunction], TestFunction]:
    """Run the decorated test once per position of the sequences, each inside `configured`.

    As `parametrize_config`, but the first values of all keys go together, then the second ones, and
    so on.

    Args:
        **sequences: For each configuration key, its values, as many as for the others.

    Returns:
        The decorator.

    Raises:
        ValueError: no key at all, one that does not exist, or sequences of different lengths.
        TypeError: a value that `configure` would refuse, or a text where a sequence of values
            belongs.
    """
    columns = _columns("parametrize_config_pointwise", sequences)
    lengths = {key: len(values) for key, values in columns.items()}
    if len(set(lengths.values())) > 1:
        got = ", ".join(f"{key} has {length}" for key, length in lengths.items())
        raise ValueError(f"parametrize_config_pointwise takes sequences of one length, but {got}")
    return _parametrized(columns, zip(*columns.values(), strict=True))


def _columns(caller: str, options: dict[str, Any]) -> dict[str, list[object]]:
    if not options:
        raise ValueError(
            f'{caller} needs at least one key, for example {caller}(proc_spawn_method=["fork",'
            ' "exec"])'
        )
    for key, values in options.items():
        if isinstance(values, (str, bytes)):
            raise TypeError(
                f"{caller}: {key} takes a collection of values to try, got {values!r}: write"
                f" [{values!r}]"
            )
    return {key: _ordered(values) for key, values in options.items()}


def _ordered(values: Iterable[object]) -> list[object]:
    # The order of a set of texts differs from process to process, and pytest-xdist wants the same
    # tests in all of them.
    return sorted(values, key=repr) if isinstance(values, (set, frozenset)) else list(values)


def _parametrized(
    keys: Iterable[str], rows: Iterable[tuple[object, ...]]
) -> Callable[[TestFunction], TestFunction]:
    cases = [dict(zip(keys, row, strict=True)) for row in rows]
    for case in cases:
        keep_all(case)  # a typo shows at the decorator, not in each run

    def decorate(test: TestFunction) -> TestFunction:
        import pytest

        ids = ["-".join(f"{key}={text_of(value)}" for key, value in case.items()) for case in cases]
        marked: TestFunction = pytest.mark.parametrize(_PARAMETER, cases, ids=ids)(_wrapped(test))
        return marked

    return decorate


def _wrapped(test: Callable[..., Any]) -> Callable[..., Any]:
    import functools
    import inspect

    @functools.wraps(test)
    def run(*args: Any, _config_overrides: dict[str, object], **kwargs: Any) -> Any:
        with STORE.configured(_config_overrides):
            return test(*args, **kwargs)

    @functools.wraps(test)
    async def run_async(*args: Any, _config_overrides: dict[str, object], **kwargs: Any) -> Any:
        with STORE.configured(_config_overrides):
            return await test(*args, **kwargs)

    wrapper: Any = run_async if inspect.iscoroutinefunction(test) else run
    # pytest asks for what this names
    wrapper.__signature__ = _with_parameter(inspect.signature(test))
    # a function, but mypy knows none with a signature of its own
    return wrapper  # type: ignore[no-any-return]


def _with_parameter(signature: inspect.Signature) -> inspect.Signature:
    from inspect import Parameter

    if _PARAMETER in signature.parameters:
        raise ValueError(
            "this test has a parametrize_config already: give both sets of keys to one decorator"
        )
    parameters = list(signature.parameters.values())
    # pytest takes a method's first parameter for self, under any name.
    position = 1 if parameters and parameters[0].name in ("self", "cls") else 0
    parameters.insert(position, Parameter(_PARAMETER, Parameter.POSITIONAL_OR_KEYWORD))
    return signature.replace(parameters=parameters)
