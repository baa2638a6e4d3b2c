"""Ignored files of a folder.

They are those of `.gitignore` and `.monarchignore`, by the rules of git, and those of no use
elsewhere.

`pathspec` knows the rules. git itself would do, where there is one, in a repository: but a
workspace need be none, an image of a container often has no git, and `.monarchignore` is to mean
the same.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Container
from typing import Any

from .._namedtuple import NamedTuple

FILES = (".gitignore", ".monarchignore")
"""Read in this order in each folder.

What stands later counts more, and what is in deeper folders more still.
"""

QUIET = {"__pycache__", ".ipynb_checkpoints"}
"""Always left out. There are many, and nobody misses them."""

_ALWAYS = {".git", ".hg", ".monarch"} | QUIET


class Rules(NamedTuple):
    """The rules for what is left out below a folder.

    Attributes:
        levels: Of each folder with rules, the outermost first: its path with a slash at its end,
            the name of its file, its patterns.
        fingerprint: Another one for other rules.
        but: A path, where nothing else is left out, whatever files of rules say; empty where they
            count.
    """

    levels: tuple[tuple[str, str, Any], ...] = ()
    fingerprint: str = ""
    but: str = ""

    def below(self, folder: str, names: Container[str]) -> Rules:
        """The rules of a folder in it.

        Args:
            folder: Its path, without a slash at its end.
            names: What is in it.

        Raises:
            ImportError: It has rules, and nothing here knows how to read them.
        """
        rules = self
        for name in FILES:
            if name in names and not self.but:
                rules = rules._and(folder, name)
        return rules

    def _and(self, folder: str, name: str) -> Rules:
        try:
            from pathspec import GitIgnoreSpec
        except ImportError as error:
            raise ImportError(
                f"{folder}/{name} says what to leave out; to have it read: pip install"
                " 'pymonarch[sync]'"
            ) from error
        try:
            with open(f"{folder}/{name}", encoding="utf-8", errors="surrogateescape") as file:
                text = file.read()
        except FileNotFoundError:  # it was there a moment ago
            return self
        seen = f"{self.fingerprint}\0{folder}/{name}\0{text}".encode(errors="surrogateescape")
        level = (f"{folder}/", name, GitIgnoreSpec.from_lines(text.splitlines()))
        return Rules((*self.levels, level), hashlib.sha256(seen).hexdigest()[:16])

    def why_not(self, folder: str, name: str, is_folder: bool) -> str:
        """Why something in a folder is left out; empty if it is not."""
        if name in _ALWAYS:
            return "always left out"
        if self.but == f"{folder}/{name}":
            return "left out of environments"
        path = f"{folder}/{name}/" if is_folder else f"{folder}/{name}"
        for base, source, patterns in reversed(self.levels):
            include = patterns.check_file(path[len(base) :]).include
            if include is not None:
                return f"ignored by {source}" if include else ""
        return ""


def rules_above(folder: str) -> Rules:
    """The rules of the repository that a folder is a part of, if it is."""
    above = []
    while not os.path.lexists(f"{folder}/.git"):
        folder = os.path.dirname(folder)
        if folder in ("", "/"):
            return Rules()
        above.append(folder)
    rules = Rules()
    for each in reversed(above):
        rules = rules.below(each, {name for name in FILES if os.path.isfile(f"{each}/{name}")})
    return rules
