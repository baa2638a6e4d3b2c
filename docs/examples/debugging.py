"""Two ranks stop, and are debugged with `monarch debug` from outside. Prints both terminals."""

# ruff: noqa: T100

import math
import os
import re
import socket
import subprocess
import sys

from monarch.actor import Actor, current_rank, endpoint, this_host


# region trainer
class Trainer(Actor):
    @endpoint
    def step(self, number: int) -> float:
        batch = [number, current_rank().rank]
        loss = math.nan if batch[1] % 2 else 1 / number
        if math.isnan(loss):
            breakpoint()
        return loss


# endregion


def train() -> None:
    trainers = this_host().spawn_procs(per_host={"gpus": 4}).spawn("trainer", Trainer)
    print(trainers.step.call(2).get().values())


COMMANDS = """\
list
where --all
attach trainer 1
p batch
loss = 0.25
c
cast trainer ranks(gpus=3) loss = 0.125
continue
quit
"""


def record() -> None:
    program = subprocess.Popen(
        [sys.executable, __file__, "train"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert program.stdout is not None
    said = ["$ python train.py\n"]
    while not said[-1].startswith("monarch: to look"):
        said.append(program.stdout.readline())
        assert said[-1], "it has ended"
    command = [sys.executable, "-m", "monarch.tools", "debug", "--program", str(program.pid)]
    debug = subprocess.run(command, input=COMMANDS, capture_output=True, text=True, check=True)
    rest = program.stdout.read()
    print(
        readable(
            "".join(said) + rest + "\n$ monarch debug        # in another terminal\n" + debug.stdout
        ),
        end="",
    )


def readable(text: str) -> str:
    """Without what is of this machine, or of this moment."""
    text = text.replace(os.path.abspath(__file__), "/home/ada/train.py")
    text = re.sub(rf"\b{re.escape(socket.gethostname())}\b *", "node1 ", text).replace(
        "(node1 )", "(node1)"
    )
    text = text.replace("node1 :", "node1:")
    text = re.sub(r"stopped \d+ s *", "stopped 9 s ", text)
    head, table, tail = re.split(r"((?:^[+|].*\n)+)", text, maxsplit=1, flags=re.MULTILINE)
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in table.splitlines()
        if line[0] == "|"
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rules = ["+" + "+".join(sign * (width + 2) for width in widths) + "+" for sign in "-="]
    lines = [rules[0]]
    for row in rows:
        lines.append(
            "|"
            + "|".join(f" {cell:{width}} " for cell, width in zip(row, widths, strict=True))
            + "|"
        )
        lines.append(rules[row is rows[0]])
    return head + "\n".join(lines) + "\n" + tail


if __name__ == "__main__":
    train() if sys.argv[1:] == ["train"] else record()
