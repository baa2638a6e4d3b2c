"""Paths in the files of a conda environment, written anew where it lies elsewhere.

In packages of conda the prefix is a placeholder, which has been replaced where they were installed;
``conda-meta`` says in which files, and how: in text as it is, in binary files with zeros behind the
string that it is a part of, so that nothing after that moves. That is the *prefix replacement* of
https://docs.conda.io/projects/conda-build/en/stable/resources/make-relocatable.html. The
placeholder is longer than any prefix, so there is room for another one. What `pip` and `venv` write
is text.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ..errors import EnvironmentFailed

_INSTALLED = re.compile(  # text that has paths in it, which no package of conda has brought
    r"pyvenv\.cfg|bin/[^/]+|lib/python3[^/]*/site-packages/"
    r"([^/]+\.(pth|egg-link)|__editable__[^/]+\.py|[^/]+\.dist-info/direct_url\.json)"
)
# of a path: /env is no part of /a/env, nor of $A/env
_BEGIN = rb"(?:(?<![\w.)}~])|(?<=-[BFIL])|(?<=-isystem))"
_END = rb"(?![\w.+-])"  # no more of the name: /a/env is no part of /a/env2
_LONGEST_SHEBANG = 127  # bytes, as conda has it; kernels before Linux 5.1 cut off what follows
_BINARY = 8192  # bytes, in which a file that is not text has a zero


def spellings(path: str | Path) -> list[str]:
    """How files may name a folder."""
    return list(dict.fromkeys([os.fspath(path), os.path.realpath(path)]))


def editable_folders(prefix: Path) -> dict[str, str]:
    """Folders outside of an environment that it imports from, with the package installed from each.

    Folders are spelled as the environment's files do.

    Raises:
        EnvironmentFailed: One of its files can't be read.
    """
    found: dict[str, str] = {}
    inside = spellings(prefix)
    for packages in sorted(prefix.glob("lib/python3*/site-packages")):
        for file in sorted(packages.glob("*.dist-info/direct_url.json")):
            try:
                content = json.loads(file.read_bytes())
                url = urlsplit(content["url"])
                editable = content.get("dir_info", {}).get("editable")
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise EnvironmentFailed(
                    f"{file} does not say where its package is: {error!r}"
                ) from None
            if editable and url.scheme == "file" and not _is_in(unquote(url.path), inside):
                found[os.path.normpath(unquote(url.path))] = file.parent.name.partition("-")[0]
        for file in sorted(packages.glob("*.pth")):
            for line in file.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
                folder = os.path.normpath(os.path.join(packages, line.strip()))
                if os.path.isdir(folder) and not _is_in(folder, [*inside, *found]):
                    found[folder] = os.path.basename(folder)
    return found


def relocate(
    folder: Path, files: Collection[str], prefixes: Collection[str], moved: Mapping[str, str]
) -> None:
    """Rewrite paths in the files of an environment; files without such paths are not touched.

    Args:
        folder: Where it is now.
        files: All of its files, by their paths; links are none.
        prefixes: Where it was.
        moved: Other folders that its text names, to where they are now.

    Raises:
        EnvironmentFailed: A file has no room for the path of the folder.
    """
    places = {os.fsencode(old): os.fsencode(place) for old, place in moved.items()}
    places.update((os.fsencode(old), os.fsencode(folder)) for old in prefixes)
    names = re.compile(_BEGIN + _any_of(places).pattern)
    prefix = _any_of(map(os.fsencode, prefixes))
    rooms = _rooms(folder, files)
    for path in sorted({*rooms, *filter(_INSTALLED.fullmatch, files)}):
        old = Path(folder, path).read_bytes()
        if rooms.get(path):
            new = _in_binary(path, old, prefix, os.fsencode(folder), rooms[path])
        elif path in rooms or b"\0" not in old[:_BINARY]:
            new = _with_short_shebang(names.sub(lambda found: places[found[0]], old))
        else:
            continue
        if new != old:
            _replace(f"{folder}/{path}", new)


def _rooms(folder: Path, files: Collection[str]) -> dict[str, int]:
    """Find the files that contain the prefix, and how many bytes each may use for it.

    Packages of conda say that. 0 means any number, in text.
    """
    rooms = {}
    for path in files:
        if path.startswith("conda-meta/") and path.endswith(".json"):
            try:
                listed = (
                    json.loads(Path(folder, path).read_bytes())
                    .get("paths_data", {})
                    .get("paths", [])
                )
                found = {
                    each["_path"]: (
                        len(os.fsencode(each["prefix_placeholder"]))
                        * (each["file_mode"] == "binary")
                    )
                    for each in listed
                    if each.get("prefix_placeholder")
                }
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise EnvironmentFailed(
                    f"{path} of the environment is none of conda's: {error!r}"
                ) from None
            rooms.update({path: room for path, room in found.items() if path in files})
    return rooms


def _any_of(paths: Iterable[bytes]) -> re.Pattern[bytes]:
    return re.compile(
        rb"(?:%s)%s" % (b"|".join(map(re.escape, sorted(paths, key=len, reverse=True))), _END)
    )


def _in_binary(path: str, data: bytes, prefix: re.Pattern[bytes], new: bytes, room: int) -> bytes:
    def padded(found: re.Match[bytes]) -> bytes:
        string = found[0].rstrip(b"\0")
        moved = prefix.sub(lambda _: new, string)
        # the last zero is the end of the string
        spare = sum(room - len(each) for each in prefix.findall(string))
        if len(moved) - len(string) > min(spare, len(found[0]) - len(string) - 1):
            raise EnvironmentFailed(
                f"{path} of the environment has room for a prefix of {room} bytes, and"
                f" {os.fsdecode(new)} has {len(new)}: set a shorter MONARCH_SYNC_FOLDER for the"
                " worker"
            )
        return moved.ljust(len(found[0]), b"\0")

    return re.sub(prefix.pattern + rb"[^\0]*\0+", padded, data)


def _with_short_shebang(text: bytes) -> bytes:
    first, end, rest = text.partition(b"\n")
    if not first.startswith(b"#!") or len(first) <= _LONGEST_SHEBANG:
        return text
    program, *options = first[2:].split(None, 1)
    return b" ".join([b"#!/usr/bin/env", os.path.basename(program), *options]) + end + rest


def _replace(path: str, content: bytes) -> None:
    """Have another file take the place of one, which may have other names."""
    new = f"{path}.monarch"
    with open(new, "xb") as file:
        file.write(content)
    shutil.copystat(path, new)
    os.replace(new, path)


def _is_in(path: str, folders: Iterable[str]) -> bool:
    return any(path == each or path.startswith(f"{each}/") for each in folders)
