"""Paths in the files of a conda environment that has been moved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from monarch.environments.prefix import editable_folders, relocate
from monarch.errors import EnvironmentFailed


def write(folder: Path, **files: bytes) -> dict[str, bytes]:
    """Make files; underscores stand for slashes."""
    found = {name.replace("__", "/"): content for name, content in files.items()}
    for name, content in found.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return found


def list_in_conda_meta(folder: Path, **modes: tuple[str, str]) -> None:
    paths = [
        {"_path": name.replace("__", "/"), "file_mode": mode, "prefix_placeholder": placeholder}
        for name, (mode, placeholder) in modes.items()
    ]
    content = json.dumps({"paths_data": {"paths": [*paths, {"_path": "no/prefix"}]}})
    write(folder, **{"conda-meta__a.json": content.encode()})


def test_text_names_the_new_place_and_nothing_that_only_begins_alike(tmp_path: Path) -> None:
    files = write(
        tmp_path,
        bin__tool=b"#!/old/env/bin/python\n/old/env2 /old/env-b /old/env: '/old/env' /old/code/src",
        bin__long=b"#!/old/env/" + b"x" * 120 + b"/python3 -u -E\nrest",
        bin__program=b"\x7fELF\0/old/env/lib\0",
        etc__listed=b"prefix=/old/env",
        etc__other=b"prefix=/old/env",
    )
    list_in_conda_meta(
        tmp_path, etc__listed=("text", "/placeholder"), absent=("text", "/placeholder")
    )
    kept = (tmp_path / "etc" / "other").stat().st_ino
    relocate(tmp_path, [*files, "conda-meta/a.json"], ["/old/env"], {"/old/code": "/new/code"})
    new = str(tmp_path)
    assert (
        tmp_path / "bin/tool"
    ).read_text() == f"#!{new}/bin/python\n/old/env2 /old/env-b {new}: '{new}' /new/code/src"
    assert (tmp_path / "bin/long").read_text() == "#!/usr/bin/env python3 -u -E\nrest"
    assert (tmp_path / "bin/program").read_bytes() == files["bin/program"]
    assert (tmp_path / "etc/listed").read_text() == f"prefix={new}"
    assert (tmp_path / "etc/other").read_bytes() == files["etc/other"]
    assert (tmp_path / "etc/other").stat().st_ino == kept


def test_text_keeps_paths_that_only_end_alike(tmp_path: Path) -> None:
    kept = b"/data/env ../env $HOME/env ${HOME}/env https://of.a/env ~/env my/code "
    files = write(
        tmp_path,
        bin__a=kept + b"file:///env -L/env -I/env/include ${A:-/env} PATH=/bin:/env '/code'",
    )
    relocate(tmp_path, files, ["/env"], {"/code": "/new/code"})
    new = str(tmp_path)
    expected = f"file://{new} -L{new} -I{new}/include ${{A:-{new}}} PATH=/bin:{new} '/new/code'"
    assert (tmp_path / "bin/a").read_bytes() == kept + expected.encode()


def test_what_follows_a_string_in_a_binary_file_stays_where_it_is(tmp_path: Path) -> None:
    new, room = str(tmp_path).encode(), 200
    spare = bytes(room - len("/old/env"))
    content = b"\x7fELF\0-L/old/env/lib\0" + spare + b"\0next\0/old/env\0" + spare + b"end"
    files = write(tmp_path, lib__a=content, lib__b=content)
    list_in_conda_meta(tmp_path, lib__a=("binary", "_" * room))
    relocate(tmp_path, [*files, "conda-meta/a.json"], ["/old/env"], {})
    found = (tmp_path / "lib/a").read_bytes()
    assert len(found) == len(content)
    assert found.index(b"next") == content.index(b"next") and found.endswith(b"end")
    assert found.split(b"\0")[1] == b"-L" + new + b"/lib" and found.count(new) == 2
    assert (tmp_path / "lib/b").read_bytes() == content  # no package says how much room it has


@pytest.mark.parametrize("zeros", [1, 200])
def test_a_string_without_room_is_an_error(tmp_path: Path, zeros: int) -> None:
    room = 200 if zeros == 1 else len(str(tmp_path)) - 1
    files = write(tmp_path, lib__a=b"/old/env" + bytes(zeros))
    list_in_conda_meta(tmp_path, lib__a=("binary", "_" * room))
    with pytest.raises(EnvironmentFailed, match=rf"lib/a .* room for a prefix of {room} bytes"):
        relocate(tmp_path, [*files, "conda-meta/a.json"], ["/old/env"], {})


def test_folders_outside_are_those_that_installers_have_written_down(tmp_path: Path) -> None:
    packages = tmp_path / "env/lib/python3.11/site-packages"
    project, other, inside = (
        tmp_path / "my project",
        tmp_path / "other",
        tmp_path / "env/src/inside",
    )
    for folder in (
        packages / "a-1.0.dist-info",
        packages / "b-1.0.dist-info",
        project / "src",
        other,
        inside,
    ):
        folder.mkdir(parents=True)
    origin = {"url": f"file://{tmp_path}/my%20project", "dir_info": {"editable": True}}
    (packages / "a-1.0.dist-info/direct_url.json").write_text(json.dumps(origin))
    (packages / "b-1.0.dist-info/direct_url.json").write_text(
        json.dumps({"url": "https://of.b", "vcs_info": {}})
    )
    lines = [f"{project}/src", str(other), str(inside), "import sys", "# a note", "", "/nowhere"]
    (packages / "easy-install.pth").write_text("\n".join(lines))
    assert editable_folders(tmp_path / "env") == {str(project): "a", str(other): "other"}
    (packages / "a-1.0.dist-info/direct_url.json").write_text("[]")
    with pytest.raises(EnvironmentFailed, match="does not say where its package is"):
        editable_folders(tmp_path / "env")
