"""`monarch --help` ends with a quick start, for people and for agents."""

from __future__ import annotations

import re

import pytest

from monarch.tools import cli


def test_the_help_ends_with_a_quick_start_of_commands_that_exist(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    _, _, quick_start = capsys.readouterr().out.partition("Quick start")
    commands = re.findall(r"^ *monarch ([a-z-]+)", quick_start, re.MULTILINE)
    groups = cli._GROUPS.values()
    words = {word for group in groups for words in group.values() for word in words}
    assert {"apply", "exec", "kill", "why", "query"} <= set(commands) <= words
    assert "--json has results as JSON" in quick_start
