"""Each command has `--json`: what people read in a table or a sentence, other programs need not
parse.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("typer", reason="the command needs typer, which is not installed")

WITHOUT = {
    "run": "it reads its options itself, as torchrun does, and has it among them",
    "shell": (
        "what the shell writes is all that there is, byte by byte; its exit status is that of the"
        " command"
    ),
    "tui": "a screen for people; what it shows comes from the admin interface, which is JSON",
}
"""Commands that show no such option, and why."""


def commands(first: str | None = None) -> Iterator[tuple[str, list[str]]]:
    """Each command, and its options; with a first word, of those that it needs."""
    from typer.main import get_command

    from monarch.tools import cli

    def below(command: object, name: str) -> Iterator[tuple[str, list[str]]]:
        for word, found in getattr(command, "commands", {}).items():
            yield from below(found, f"{name} {word}".strip())
        if not hasattr(command, "commands"):
            # a command
            yield name, [option for each in command.params for option in each.opts]  # type: ignore[attr-defined]

    yield from below(get_command(cli.commands(first)), "")


def test_every_command_has_json_or_a_reason_why_not() -> None:
    found = dict(commands())
    assert {name for name, options in found.items() if "--json" not in options} == set(WITHOUT)


def test_run_has_json_among_the_options_of_torchrun(capsys: pytest.CaptureFixture[str]) -> None:
    from typer.testing import CliRunner

    from monarch.tools import cli

    assert "--json" in CliRunner().invoke(cli.commands(), ["run", "--help"]).output


def test_a_command_alone_is_the_one_among_all_others() -> None:
    from monarch.tools import cli

    every = dict(commands())
    words = [word for of in cli._GROUPS.values() for module in of.values() for word in module]
    assert [*dict.fromkeys(name.partition(" ")[0] for name in every)] == words
    for word in words:
        alone = dict(commands(word))
        assert {name: every[name] for name in alone} == alone
        assert word in {name.partition(" ")[0] for name in alone}
    assert set(dict(commands("worker"))) == {"worker", "secret"}
    assert dict(commands("no such command")) == every


def test_help_lists_each_command_in_a_group_and_on_one_line() -> None:
    from typer.testing import CliRunner

    from monarch.tools import cli

    result = CliRunner().invoke(cli.commands(), ["--help"], env={"COLUMNS": "100", "TERM": "dumb"})
    lines = [line.strip("│ ") for line in result.stdout.splitlines() if "│" in line]
    for group, modules in cli._GROUPS.items():
        assert f" {group} " in result.stdout
        for command in (word for words in modules.values() for word in words):
            [line] = [line for line in lines if line.split()[:1] == [command]]
            assert line.endswith("."), line
