"""Patterns of `.gitignore`, each matched in a time that grows only with the path. Pure.

Each becomes a regular expression that tries no part twice: what stands between two wildcards is
taken where it comes first, and kept, as `fnmatch` does it. Of ``a*a*a*a*a*a*a*b``, others make one
that needs hours for a name of a hundred letters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import count

_TOKENS = re.compile(
    r"(?P<star>\*+)|(?P<any>\?)|\[(?P<no>[!^]?)(?P<set>\]?(?:\\.|[^\]\\])*)\]|\\(?P<kept>.)|(?P<one>[^\\\[])",
    re.DOTALL,
)
_RANGES = re.compile(r"\\?(.)(?:-\\?(.))?", re.DOTALL)
_LONGEST = 4096  # characters; expressions of many more take long to make
_FOLDERS = "(?:[^/]+/)*?"  # as few as will do

Rule = tuple[Callable[[str], object], bool]
"""Tells whether a rule means a path; and whether it is left out then, or taken."""


def rules(text: str, source: str) -> list[Rule]:
    """The rules of a file, as git reads them.

    Args:
        text: Its content.
        source: Its path.

    Raises:
        ValueError: A line is no pattern.
    """
    found: list[Rule] = []
    for number, line in enumerate(text.split("\n"), 1):
        line = line.removesuffix("\r")
        bare = line.rstrip(" ")
        if bare != line and (len(bare) - len(bare.rstrip("\\"))) % 2:
            bare += " "  # which is a part of the name
        if bare and not bare.startswith("#"):
            try:
                pattern = re.compile(_regex(bare.removeprefix("!")))
            except (ValueError, re.error) as error:
                raise ValueError(
                    f"{source}:{number}: {line[:80]!r} is no pattern: {error}"
                ) from None
            found.append((pattern.fullmatch, not bare.startswith("!")))
    return found


def _regex(text: str) -> str:
    """The expression for a pattern. Of a folder, the path has a slash at its end."""
    tokens = [*_TOKENS.finditer(text.removesuffix("/")[:_LONGEST])]
    if sum(len(token[0]) for token in tokens) < len(text.removesuffix("/")):
        raise ValueError("a set or a backslash has no end, or it is longer than any path")
    steps: list[list[re.Match[str]]] = [[]]
    for token in tokens:
        steps.append([]) if token["one"] == "/" else steps[-1].append(token)
    if not any(steps):
        raise ValueError("it names nothing")
    numbers = count()
    parts: list[list[str]] = [[]] if len(steps) > 1 else [[], []]
    for step in steps[not steps[0] :]:
        if [token[0] for token in step] == ["**"]:
            parts.append([])
        else:
            parts[-1].append(_step(step, numbers))
    first, *others = ["/".join(part) for part in parts]
    end = "/" if text.endswith("/") else "/?"
    if not others:
        return first + end
    *middle, last = others
    found = [f"{first}/" if first else ""]
    found += [_kept(f"{_FOLDERS}{part}/", numbers) for part in middle if part]
    return f"{''.join(found)}{_FOLDERS}{last or '[^/]+'}{end}"


def _step(tokens: Iterable[re.Match[str]], numbers: Iterator[int]) -> str:
    """The expression for what stands between two slashes."""
    parts = [""]
    for token in tokens:
        if token["star"]:
            parts.append("")
        elif token["any"]:
            parts[-1] += "[^/]"
        elif token["set"] is None:
            parts[-1] += re.escape(token["kept"] or token["one"])
        else:
            ranges = (filter(None, each) for each in _RANGES.findall(token["set"]))
            inside = "".join("-".join(map(re.escape, each)) for each in ranges)
            parts[-1] += f"(?!/)[{'^' if token['no'] else ''}{inside}]"
    first, *others = parts
    if not others:
        return first
    *middle, last = others
    kept = "".join(_kept(f"[^/]*?{part}", numbers) for part in middle if part)
    return f"(?=[^/]){first}{kept}[^/]*{last}"


def _kept(text: str, numbers: Iterator[int]) -> str:
    """An expression that is not matched otherwise once it has been."""
    name = f"part{next(numbers)}"
    return f"(?=(?P<{name}>{text}))(?P={name})"
