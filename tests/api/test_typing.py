"""What mypy knows about a user's program."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow  # mypy takes half a minute

SNIPPET = """
import asyncio
from monarch.actor import Actor, Accumulator, Channel, Port, endpoint, concurrent_endpoint, get_or_spawn_controller, send, this_host
from monarch.service import Service, batched


class Trainer(Actor):
    def __init__(self, rate: float, label: str = "x") -> None: ...

    @endpoint
    def train(self, step: int) -> str:
        return str(step)

    @endpoint
    def nothing(self) -> None: ...

    @endpoint(explicit_response_port=True)
    def later(self, port: Port[bytes], x: int) -> None: ...


class AsyncTrainer(Actor):
    @endpoint
    async def train(self, step: int) -> str:
        return str(step)

    @concurrent_endpoint
    async def overlap(self, step: int) -> float:
        return 1.0


class Generator(Actor):
    @batched(max_size=8)
    async def generate(self, prompts: list[str]) -> list[int]:
        return [len(prompt) for prompt in prompts]

    @batched(max_size=8)
    async def try_out(self, prompts: list[str]) -> list[int | Exception]:
        return [len(prompt) for prompt in prompts]


procs = this_host().spawn_procs(per_host={"gpus": 2})
trainers = procs.spawn("t", Trainer, 0.1, label="y")
asyncs = procs.spawn("a", AsyncTrainer)

reveal_type(trainers)  # trainers
reveal_type(trainers.train.call(step=0))  # call
reveal_type(trainers.train.call(step=0).get())  # call.get
reveal_type(trainers.train.call_one(0).get())  # call_one
reveal_type(trainers.train.choose(0).get())  # choose
reveal_type(next(trainers.train.stream(0)).get())  # stream
reveal_type(trainers.nothing.call_one())  # nothing
reveal_type(trainers.later.call_one(3))  # later
reveal_type(asyncs.train.call(step=0))  # async
reveal_type(asyncs.overlap.call_one(1))  # concurrent
reveal_type(trainers.slice(gpus=0))  # slice
reveal_type(trainers.slice(gpus=0).train.call_one(0))  # slice.call_one
reveal_type(procs.slice(gpus=0))  # procs.slice
reveal_type(trainers.train.call(0).get().item(gpus=0))  # item
reveal_type(trainers.train.call(0).get().values())  # values
reveal_type(Accumulator(trainers.train, 0, lambda a, b: a + len(b)).accumulate(1))  # accumulate
reveal_type(get_or_spawn_controller("c", Trainer, 0.1).get())  # controller
reveal_type(trainers.stop())  # stop

service = Service(this_host(), Trainer, (0.1,), replicas=2)
generators = Service(this_host(), Generator)
reveal_type(service)  # service
reveal_type(service.typed.train.call_one(0))  # service.call_one
reveal_type(service.typed.train.call(0).get())  # service.call
reveal_type(generators.typed.generate.call_one("x"))  # batched
reveal_type(generators.typed.try_out.call_one("x"))  # batched.errors


async def main() -> None:
    reveal_type(await asyncs.train.call_one(1))  # await
    reveal_type(await asyncio.wait_for(trainers.train.call_one(1), 1))  # wait_for
    for point, value in await trainers.train.call(1):
        reveal_type(point)  # point
        reveal_type(value)  # value
    async with procs as entered:
        reveal_type(entered)  # async with


port, receiver = Channel[int].open()
reveal_type(receiver.recv())  # recv
with procs as entered_too:
    reveal_type(entered_too)  # with

trainers.train.call(step="no")  # error: argument type
trainers.train.call()  # error: missing argument
trainers.train.broadcast(1, 2)  # error: too many
trainers.trian.call(1)  # error: unknown endpoint
trainers.later.call_one(port, 3)  # error: port is not for callers
procs.spawn("t", Trainer, "no")  # error: constructor argument
procs.spawn("t", Trainer)  # error: missing constructor argument
asyncs.overlap.call_one("no")  # error: concurrent argument
port.send("no")  # error: port value
service.typed.train.call_one("no")  # error: service argument
service.typed.trian.call_one(0)  # error: unknown endpoint of a service
generators.typed.generate.call_one(["x"])  # error: batched argument
"""


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What mypy says about each line, by the comment at its end."""
    pytest.importorskip("mypy")
    path = tmp_path_factory.mktemp("typing") / "program.py"
    path.write_text(SNIPPET)
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--no-error-summary",
            str(path),
        ],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=ROOT,  # where a check of the whole tree has left what it knows of the package
    )
    assert result.returncode in (0, 1), result.stdout + result.stderr
    lines = SNIPPET.splitlines()
    said: dict[str, str] = {}
    for match in re.finditer(r"program\.py:(\d+): (?:note|error): (.*)", result.stdout):
        comment = lines[int(match.group(1)) - 1].partition("  # ")[2] or f"line {match.group(1)}"
        said[comment] = said.get(comment, "") + match.group(2)
    said["everything"] = result.stdout
    return said


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("trainers", "Trainer"),
        ("call", "Future[ValueMesh[str]]"),
        ("call.get", "ValueMesh[str]"),
        ("call_one", "str"),
        ("choose", "str"),
        ("stream", "str"),
        ("nothing", "Future[None]"),
        ("later", "Future[bytes]"),
        ("async", "Future[ValueMesh[str]]"),
        ("concurrent", "Future[float]"),
        ("slice", "Trainer"),
        ("slice.call_one", "Future[str]"),
        ("procs.slice", "ProcMesh"),
        ("item", "str"),
        ("values", "list[str]"),
        ("accumulate", "Future[int]"),
        ("controller", "Trainer"),
        ("stop", "Future[None]"),
        ("service", "Service[Trainer]"),
        ("service.call_one", "Future[str]"),
        ("service.call", "ValueMesh[str]"),
        ("batched", "Future[int]"),
        ("batched.errors", "Future[int]"),
        ("await", "str"),
        ("wait_for", "str"),
        ("point", "Point"),
        ("value", "str"),
        ("async with", "ProcMesh"),
        ("with", "ProcMesh"),
        ("recv", "Future[int]"),
    ],
)
def test_mypy_reveals_the_type(output: dict[str, str], expression: str, expected: str) -> None:
    said = output.get(expression, output["everything"])
    revealed = re.search(r'Revealed type is "(.*?)"', said)
    assert revealed is not None, said
    # Without the modules that the names come from, and without the marks of builtins.
    assert re.sub(r"\b[\w.]+\.(\w+)", r"\1", revealed.group(1)).replace("builtins.", "") == expected


@pytest.mark.timeout(300)
@pytest.mark.parametrize("line", [line for line in SNIPPET.splitlines() if "# error" in line])
def test_mypy_refuses(output: dict[str, str], line: str) -> None:
    assert output.get(line.partition("  # ")[2]), output["everything"]


@pytest.mark.timeout(300)
def test_mypy_finds_nothing_wrong_elsewhere(output: dict[str, str]) -> None:
    unexpected = {
        where: said
        for where, said in output.items()
        if where != "everything" and not where.startswith("error") and "Revealed" not in said
    }
    assert unexpected == {}


def test_the_package_says_that_it_is_typed() -> None:
    import monarch

    assert monarch.__file__ is not None
    assert (Path(monarch.__file__).parent / "py.typed").exists()
