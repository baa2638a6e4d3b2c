"""Names that a shell would run, or a scheduler take for its own, for jobs that are real."""

from __future__ import annotations

from pathlib import Path

WORD = """$(touch owned) `touch owned` it's "q"; touch owned # $HOME 100%j"""

IN_SUCH_A_FOLDER = f"""
    WORD = {WORD!r}
    os.mkdir(WORD)
    os.chdir(WORD)
    PYTHON = os.path.abspath(WORD)
    with open(PYTHON, "w") as file:
        file.write('#!/bin/sh\\nexec ' + sys.executable + ' "$@"\\n')
    os.chmod(PYTHON, 0o700)
"""
"""Part of a program: from here on it works in a folder of this name, with an interpreter of it."""


def nothing_was_run(folder: Path) -> bool:
    """Whether no word has been taken for a command, below a folder or in that of this program."""
    return not [*folder.rglob("owned")] and not Path("owned").exists()
