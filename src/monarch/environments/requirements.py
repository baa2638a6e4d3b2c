"""The content of an environment, by its file.

That is the requirements, with those of the files that it names, and code to import in place.

Relative paths begin at the folder of the file that is asked for; those behind ``-r`` and ``-c`` at
the file that has them, as for pip.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from .._extras import TOML, of_extra
from ..errors import EnvironmentFailed

_OPTION = re.compile(r"(-[rce]|--(?:requirement|constraint|editable)(?=[\s=]))[\s=]*(.+)")
_CONTINUED = re.compile(r"\\\r?\n")
_COMMENT = re.compile(r"(^|\s)#.*")
_REMOTE = re.compile(r"[\w+.-]+://|\w+\+")  # a version control system is one, too
_FILE = re.compile(r"file:(//(localhost)?(?=/))?")
_WITH_EXTRAS = re.compile(r"(?P<what>.*?)\s*(\[(?P<extras>[^]]*)])?")
_WORDS = re.compile(r"[\s;]+|@(?=file:)|^--[\w-]+=")
_ARCHIVES = (".whl", ".zip", ".tar.gz", ".tar.bz2", ".tar.xz", ".tgz")
_PIECE = 1 << 20  # bytes


class Requirements:
    """Requirements from files, read one after the other.

    Args:
        folder: Where relative paths begin.

    Attributes:
        lines: For the installer.
        constraints: The same.
        editable: Folders to import from, as they are at each time.
    """

    def __init__(self, folder: Path) -> None:
        self.lines: list[str] = []
        self.constraints: list[str] = []
        self.editable: list[str] = []
        self._folder = folder
        self._read: set[tuple[Path, bool]] = set()

    def read_file(self, file: Path, constraint: bool = False) -> None:
        """Take the lines of a ``requirements.txt``, and of those that it names.

        Each file is taken once, as they may name each other.

        Raises:
            EnvironmentFailed: One can't be read, or names an editable folder that is none.
        """
        file = Path(os.path.realpath(file))
        if (file, constraint) not in self._read:
            self._read.add((file, constraint))
            self.read(text_of(file), file.parent, constraint)

    def read(
        self, text: str, folder: Path, constraint: bool = False, complete: bool = False
    ) -> None:
        """Take lines.

        Args:
            text: The lines.
            folder: Where other files are, relative to it.
            constraint: Whether they are constraints.
            complete: Whether the dependencies of editable projects are among them.
        """
        lines = self.constraints if constraint else self.lines
        for line in _CONTINUED.sub(" ", text).splitlines():
            line = _COMMENT.sub("", line).strip()
            found = _OPTION.fullmatch(line)
            if not line:
                continue
            if found is None or (_REMOTE.match(found[2]) and not _FILE.match(found[2])):
                lines.append(line)
            elif found[1] in ("-e", "--editable"):
                self.add_editable(found[2], complete)
            else:
                self.read_file(folder / _path(found[2]), found[1] in ("-c", "--constraint"))

    def add_editable(self, what: str, complete: bool = False) -> None:
        """Take the code of a folder, ``./lib`` or ``./lib[extra]``, and its dependencies.

        Raises:
            EnvironmentFailed: There is no such folder; or what it depends on can't be read without
                building it.
        """
        found = _WITH_EXTRAS.fullmatch(_path(what))
        assert found is not None
        project = Path(os.path.normpath(self._folder / found["what"]))
        if not project.is_dir():
            raise EnvironmentFailed(f"-e {what}: there is no folder {project}")
        self.editable.append(str(project / "src" if (project / "src").is_dir() else project))
        if not complete:
            extras = [each.strip() for each in (found["extras"] or "").split(",") if each.strip()]
            self.lines += _dependencies(project, extras)

    def contents(self) -> Iterator[str]:
        """Iterate over the contents of local files and folders that lines name.

        The same paths may hold other things in other workspaces.
        """
        for line in [*self.lines, *self.constraints]:
            for word in _WORDS.split(os.path.expandvars(line)):
                path = _path(word).partition("[")[0]
                looks_like_one = (
                    line.startswith("-")
                    or "/" in path
                    or path.startswith(".")
                    or path.endswith(_ARCHIVES)
                )
                if path and looks_like_one:
                    yield from content_of(self._folder / path)


def content_of(path: Path) -> Iterator[str]:
    """Digests of a file, or of all files below a folder.

    Hidden files and those that a build leaves are skipped.
    """
    if path.is_file():
        yield _digest(path)
    for root, folders, files in os.walk(path):  # of a file, nothing
        folders[:] = sorted(
            each
            for each in folders
            if not each.startswith(".")
            and not each.endswith((".egg-info", "__pycache__"))
            and (each != "build" or root != str(path))
        )
        for each in (Path(root, name) for name in sorted(files)):
            if each.is_file():
                yield f"{each.relative_to(path)} {_digest(each)}"


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def text_of(file: Path) -> str:
    """The text of the file.

    Raises:
        EnvironmentFailed: It can't be read, or is not UTF-8.
    """
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise EnvironmentFailed(f"{file} can't be read: {error}") from None


def _path(text: str) -> str:
    """A path, or that of a ``file:`` URL."""
    return unquote(text[found.end() :]).partition("#")[0] if (found := _FILE.match(text)) else text


def _dependencies(project: Path, extras: list[str]) -> list[str]:
    """The dependencies in its ``pyproject.toml``; none for a folder of modules."""
    file = project / "pyproject.toml"
    whole = _toml(file) if file.is_file() else {}
    if "project" not in whole:
        if "build-system" in whole or (project / "setup.py").is_file():
            raise _dynamic(project)
        table: dict[str, Any] = {}
    else:
        table = _checked(file, "project", whole["project"], dict)
    dynamic = _strings(file, "project.dynamic", table.get("dynamic", []))
    if "dependencies" in dynamic or (extras and "optional-dependencies" in dynamic):
        raise _dynamic(project)
    found = _strings(file, "project.dependencies", table.get("dependencies", []))
    optional = _checked(
        file, "project.optional-dependencies", table.get("optional-dependencies", {}), dict
    )
    there = {_normal(name): value for name, value in optional.items()}
    wanted = [*map(_normal, extras)]
    for extra in wanted:
        if extra not in there:
            raise EnvironmentFailed(
                f"{file} has no extra {extra!r}; it has: {', '.join(there) or 'none'}"
            )
        for line in _strings(file, f"project.optional-dependencies.{extra}", there[extra]):
            own = _WITH_EXTRAS.fullmatch(line)
            if (
                own
                and own["extras"]
                and _normal(own["what"]) == _normal(str(table.get("name", "")))
            ):
                wanted += [
                    each for each in map(_normal, own["extras"].split(",")) if each not in wanted
                ]
            else:
                found.append(line)
    return found


def _dynamic(project: Path) -> EnvironmentFailed:
    return EnvironmentFailed(
        f"what {project} depends on is known only once it is built, and editable code is not built:"
        " write it into [project] dependencies of its pyproject.toml, or name the folder"
        " without -e"
    )


def _toml(file: Path) -> dict[str, Any]:
    missing = f"to read {file}, Python 3.10 needs tomli on the hosts: pip install tomli"
    toml = of_extra(TOML, missing, EnvironmentFailed)
    try:
        whole: dict[str, Any] = toml.loads(text_of(file))
    except ValueError as error:
        raise EnvironmentFailed(f"{file} is not valid TOML: {error}") from None
    return whole


def _strings(file: Path, name: str, value: Any) -> list[str]:
    if not all(isinstance(each, str) for each in _checked(file, name, value, list)):
        raise EnvironmentFailed(f"{file}: {name} is a list of strings, got {value!r}")
    return [*value]


def _checked(file: Path, name: str, value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise EnvironmentFailed(
            f"{file}: {name} is a {'table' if kind is dict else 'list'}, got {value!r}"
        )
    return value


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.strip()).lower()
