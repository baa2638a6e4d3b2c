"""Ignored files of a folder.

They are those of `.gitignore` and `.monarchignore`, by the rules of git, and those of no use
elsewhere.

git itself would do, where there is one, in a repository: but a workspace need be none, an image of
a container often has no git, and `.monarchignore` is to mean the same. Libraries make expressions
of patterns that may take hours.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Container

from .._namedtuple import NamedTuple
from .._ours import plain
from .pattern import Rule, rules

FILES = (".gitignore", ".monarchignore")
"""Read in this order in each folder.

Later rules take precedence, and those of deeper folders even more.
"""

QUIET = {"__pycache__", ".ipynb_checkpoints"}
"""Always left out: there are many of them, and hosts make their own."""

_MOST = 1 << 20  # characters of a file; each line of it costs something for each path
_ALWAYS = {".git", ".hg", ".monarch"} | QUIET


class Rules(NamedTuple):
    """The rules for exclusions below a folder.

    Attributes:
        levels: Of each folder with rules, the outermost first: its path with a slash at its end,
            the name of its file, its rules.
        fingerprint: Another one for other rules.
        but: A path, where nothing else is left out, even if files of rules say so; empty where
            they count.
    """

    levels: tuple[tuple[str, str, list[Rule]], ...] = ()
    fingerprint: str = ""
    but: str = ""

    def below(self, folder: str, names: Container[str]) -> Rules:
        """The rules of a folder in it.

        Args:
            folder: Its path, without a slash at its end.
            names: The names in it.

        Raises:
            ValueError: A line there is no pattern, or there are too many.
        """
        found = self
        for name in FILES:
            if name in names and not self.but:
                found = found._and(folder, name)
        return found

    def _and(self, folder: str, name: str) -> Rules:
        try:
            fd = plain(f"{folder}/{name}")
        except FileNotFoundError:  # it was there a moment ago, or is no file
            return self
        with open(fd, encoding="utf-8-sig", errors="surrogateescape") as file:
            text = file.read(_MOST + 1)
        if len(text) > _MOST:
            raise ValueError(f"{folder}/{name} has more than {_MOST:,} characters of patterns")
        seen = f"{self.fingerprint}\0{folder}/{name}\0{text}".encode(errors="surrogateescape")
        level = (f"{folder}/", name, rules(text, f"{folder}/{name}"))
        return Rules((*self.levels, level), hashlib.sha256(seen).hexdigest()[:16])

    def why_not(self, folder: str, name: str, is_folder: bool) -> str:
        """Why something in a folder is left out; empty if it is not."""
        if name in _ALWAYS:
            return "always left out"
        if self.but == f"{folder}/{name}":
            return "left out of environments"
        path = f"{folder}/{name}/" if is_folder else f"{folder}/{name}"
        for base, source, level in reversed(self.levels):
            below = path[len(base) :]
            for means, is_left_out in reversed(level):
                if means(below):
                    return f"ignored by {source}" if is_left_out else ""
        return ""


def rules_above(folder: str) -> Rules:
    """The rules of the repository that a folder is a part of, if it is."""
    above = []
    while not os.path.lexists(f"{folder}/.git"):
        folder = os.path.dirname(folder)
        if folder in ("", "/"):
            return Rules()
        above.append(folder)
    found = Rules()
    for each in reversed(above):
        found = found.below(each, {name for name in FILES if os.path.isfile(f"{each}/{name}")})
    return found
