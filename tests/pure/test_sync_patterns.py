"""Patterns of `.gitignore`: what git makes of them, at once, and told where they are none."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from monarch.sync import Scanner, Workspace, push, scan
from monarch.sync.ignore import Rules
from monarch.sync.pattern import rules

PIECES = ["a", "b", "c", "*", "*", "**/", "/", "/**/", "/**", "?", "[ab]", "[!a]", "[a-c]", "\\a", "\\*", "[]a]"]  # fmt: skip

SLOW = {
    "stars": "a*" * 400 + "b",
    "stars first": "*a" * 400 + "b",
    "any and stars": "?*" * 400 + "b",
    "sets and stars": "[a-z]*" * 400 + "9",
    "folders": "**/a/" * 400 + "b",
    "stars in folders": "**/*a*/" * 200 + "b",
}


def pattern(chance: random.Random) -> str:
    text = "".join(chance.choice(PIECES) for _ in range(chance.randint(1, 6)))
    # git takes the `**` of `a**/` for one of `**/`
    text = re.sub(r"(\*\*/)+", "**/", re.sub("/+", "/", re.sub(r"(?<=[^/])\*\*+", "*", text)))
    if text == "/":
        return "a"
    return ("!" if chance.random() < 0.2 else "") + text


def path(chance: random.Random) -> str:
    names = ("".join(chance.choices("abc*]", k=chance.randint(1, 3))) for _ in range(4))
    return "/".join(list(names)[: chance.randint(1, 4)])


@pytest.mark.skipif(shutil.which("git") is None, reason="asks git")
def test_patterns_mean_what_git_makes_of_them(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    for _ in range(30):
        paths = {path(chance) for _ in range(20)}
        files = sorted(
            each for each in paths if not any(other.startswith(f"{each}/") for other in paths)
        )
        for each in files:
            (tmp_path / each).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / each).touch()
        text = "\n".join(pattern(chance) for _ in range(chance.randint(1, 4)))
        (tmp_path / ".gitignore").write_text(text)
        asked = subprocess.run(
            ["git", "-C", tmp_path, "check-ignore", "-z", "--stdin"],
            input="\0".join(files), capture_output=True, text=True,
        )  # fmt: skip
        found = Rules().below(str(tmp_path), {".gitignore"})
        assert {each for each in files if is_left_out(found, tmp_path, each)} == set(
            asked.stdout.split("\0")[:-1]
        ), text
        for left in tmp_path.iterdir():
            if left.name not in (".git", ".gitignore"):
                shutil.rmtree(left) if left.is_dir() else left.unlink()


def is_left_out(found: Rules, folder: Path, file: str) -> bool:
    """As a walk finds it, which goes into no folder that is left out."""
    *folders, name = file.split("/")
    for each in folders:
        if found.why_not(str(folder), each, True):
            return True
        folder /= each
    return bool(found.why_not(str(folder), name, False))


@pytest.mark.parametrize("name", SLOW)
def test_no_pattern_takes_longer_than_its_length_and_the_paths(name: str) -> None:
    [(means, _)] = rules(SLOW[name], ".gitignore")
    for long in ("a" * 255, "a/" * 2000 + "c", "/".join(["a" * 255] * 16)):
        assert not means(long)  # at once, and not after the end of the world


@pytest.mark.parametrize(
    ("line", "means", "others"),
    [
        ("a.log\r", "a.log", "a.log\r"),
        ("name\\ ", "name ", "name"),
        ("name  ", "name", "name  "),
        ("\\#name", "#name", "name"),
        ("\\!name", "!name", "name"),
        ("[^a]", "b", "a"),
        ("[]-]", "-", "a"),
        ("[\\]]", "]", "\\"),
        ("a[^/]", "ab", "a/"),
        ("*.py", "a\n.py", "a.py\n"),
        ("name/", "name/", "name"),
    ],
)
def test_what_else_git_knows_of_a_line(line: str, means: str, others: str) -> None:
    [(matches, is_left_out)] = rules(line, ".gitignore")
    assert is_left_out and matches(means) and not matches(others)


@pytest.mark.parametrize("line", ["a[", "[!]", "[z-a]", "a\\", "!", "/", "a" * 5000])
def test_a_line_that_is_no_pattern_is_named_with_file_and_line(tmp_path: Path, line: str) -> None:
    (tmp_path / ".gitignore").write_text(f"# a comment\n\n*.log\n{line}\n")
    with pytest.raises(ValueError) as error:
        Scanner(Workspace.of(tmp_path)).scan()
    assert str(error.value).startswith(f"{tmp_path}/.gitignore:4: {line[:80]!r} is no pattern: ")


def in_the_place_of_a_file(path: Path, kind: str) -> None:
    """What another user who may write the folder can put there."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_what_is_no_file_of_patterns_is_not_waited_for_or_read_without_end(
    kind: str, tmp_path: Path
) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "train.py").touch()
    in_the_place_of_a_file(tmp_path / ".gitignore", kind)
    in_the_place_of_a_file(tmp_path / "below" / ".monarchignore", kind)
    found = Scanner(Workspace.of(tmp_path)).scan()
    assert "below/train.py" in {file.path for file in found.manifest.files}


def test_a_file_of_patterns_without_end_is_refused(tmp_path: Path) -> None:
    with (tmp_path / ".gitignore").open("w") as file:
        file.truncate(1 << 40)
    with pytest.raises(ValueError, match=r"\.gitignore has more than 1,048,576 characters"):
        Scanner(Workspace.of(tmp_path)).scan()


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_file_that_became_a_pipe_since_it_was_looked_at_is_not_waited_for(
    kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "train.py"
    in_the_place_of_a_file(path, kind)
    with pytest.raises(FileNotFoundError):
        scan._hash(str(path), lambda size: None)
    with pytest.raises(push._Changed):
        list(push._read(str(path), "", 1))
