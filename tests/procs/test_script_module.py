"""What a proc has in place of the script's module: its names are found there as in the script."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import zipapp
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.scripts import package_path, run_script

CLASSES = """
from __future__ import annotations
import abc, copyreg, enum, functools, inspect, io, multiprocessing, pickle, sys, typing
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar
from monarch.actor import Actor, context, endpoint, this_host

print("the script runs")
T = TypeVar("T")
class Unset: pass
UNSET, TOKEN = Unset(), object()
class Color(enum.Enum):
    RED = 1
@dataclass
class Config:
    color: Color
    other: Config | None = None
class Base(abc.ABC):
    @abc.abstractmethod
    def go(self): ...
class Child(Base):
    def go(self): return 3
class Box(Generic[T]):
    def __init__(self, value: T): self.value = value
class Point(NamedTuple):
    x: int
    color: Color = Color.RED
class Outer:
    class Inner:
        class Deep: pass
class Meta(type): pass
class WithMeta(metaclass=Meta): pass
@dataclass(slots=True)
class Slotted:
    a: int
@dataclass(frozen=True, slots=True)
class Frozen:
    a: int
class Below(Slotted):
    __slots__ = ("b",)
class Private:
    __slots__ = ("__x", "__weakref__")
    def __init__(self): self.__x = 4
    def x(self): return self.__x
def double(x): return 2 * x
"""
WORKER = """
def made():
    below = Below(1)
    below.b = 2
    return [Color.RED, Config(Color.RED), Child(), Box(1), Point(1), Outer.Inner.Deep(), WithMeta(),
            Slotted(1), Frozen(1), below, Private(), functools.partial(double, 4)]

class Worker(Actor):
    def __init__(self, default=UNSET):
        self.default = default

    @endpoint
    def save(self):
        return pickle.dumps(made())

    @endpoint
    def give(self):
        return made()

    @endpoint
    def dump(self, *values):
        return pickle.dumps(values)

    @endpoint
    def hints(self):
        found = typing.get_type_hints(Config), typing.get_type_hints(Point)
        return found == ({"color": Color, "other": Config | None}, {"x": int, "color": Color})

    @endpoint
    def source(self):
        return inspect.getsource(Outer), inspect.getsource(double)

    @endpoint
    def same(self, unset, token):
        return self.default is unset is UNSET, token is TOKEN

    @endpoint
    def give_same(self):
        return UNSET, TOKEN
"""
CHECKS = """
worker = this_host().spawn_procs().spawn("worker", Worker)
ask = lambda endpoint, *args: endpoint.call_one(*args).get()
for got in (pickle.loads(ask(worker.save)), ask(worker.give)):
    assert [type(value) for value in got] == [type(value) for value in made()]
    assert got[1].color is got[4].color is Color.RED and got[9].b == 2 and got[10].x() == 4
    assert not any(hasattr(value, "__dict__") for value in got[7:11])
for value in made()[:-1]:
    assert type(pickle.loads(ask(worker.dump, value))[0]) is type(value)
assert ask(worker.hints)
assert ask(worker.same, UNSET, TOKEN) == (True, True)
assert ask(worker.give_same) == (UNSET, TOKEN)
"""
SOURCES = """
assert ask(worker.source) == (inspect.getsource(Outer), inspect.getsource(double))
"""
PROGRAM = CLASSES + WORKER + CHECKS


def as_script(folder: Path) -> list[str]:
    (folder / "train.py").write_text(PROGRAM + SOURCES)
    return [str(folder / "train.py")]


def as_module(folder: Path) -> list[str]:
    (folder / "pkg").mkdir()
    (folder / "pkg" / "__init__.py").touch()
    (folder / "pkg" / "train.py").write_text(PROGRAM + SOURCES)
    return ["-m", "pkg.train"]


def as_archive(folder: Path) -> list[str]:
    (folder / "app").mkdir()
    (folder / "app" / "__main__.py").write_text(PROGRAM + SOURCES)
    zipapp.create_archive(folder / "app", folder / "app.pyz")
    return [str(folder / "app.pyz")]


def as_text(folder: Path) -> list[str]:
    return ["-c", PROGRAM]


def as_input(folder: Path) -> list[str]:
    return ["-"]


def as_cells(folder: Path) -> list[str]:
    pytest.importorskip("IPython")
    source = "assert ask(worker.source_of_function) == inspect.getsource(double)"
    method = "    @endpoint\n    def source_of_function(self): return inspect.getsource(double)\n"
    cells = [CLASSES, WORKER + "\n" + method, CHECKS, source]
    (folder / "cells.py").write_text(
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\n"
        f"for cell in {cells!r}:\n    shell.run_cell(cell).raise_error()\n"
    )
    return [str(folder / "cells.py")]


@pytest.mark.parametrize("way", [as_script, as_module, as_archive, as_text, as_input, as_cells])
def test_pickles_hints_and_sources_are_those_of_the_script_however_it_was_started(
    way: Callable[[Path], list[str]], tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, *way(tmp_path)],
        input=PROGRAM,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": package_path(), "IPYTHONDIR": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "the script runs\n"


def succeeds(source: str, expected: str) -> None:
    result = run_script(CLASSES + textwrap.dedent(source))
    assert result.exit_code == 0, str(result)
    assert result.stdout.strip() == f"the script runs\n{expected}", str(result)
    assert result.left_behind == [], str(result)


@pytest.mark.slow
def test_a_checkpoint_of_torch_is_written_in_an_actor_and_read_by_the_script(
    tmp_path: Path,
) -> None:
    succeeds(
        f"""
        import torch

        class Worker(Actor):
            @endpoint
            def save(self, path):
                torch.save({{"config": Config(Color.RED), "at": Point(1)}}, path)
                return torch.load(path, weights_only=False)["config"] == Config(Color.RED)

        path = {str(tmp_path / "checkpoint.pt")!r}
        print(this_host().spawn_procs().spawn("w", Worker).save.call_one(path).get())
        print(torch.load(path, weights_only=False))
        """,
        "True\n{'config': Config(color=<Color.RED: 1>, other=None),"
        " 'at': Point(x=1, color=<Color.RED: 1>)}",
    )


def test_a_function_that_comes_with_each_call_is_one_and_can_be_pickled() -> None:
    succeeds(
        """
        SCALE = 2
        def scaled(x): return double(x) * SCALE

        class Worker(Actor):
            def __init__(self, function):
                self.function = function

            @endpoint
            def dump(self, function):
                both = [self.function, function, functools.partial(function, 1)]
                return function(1), function is self.function, pickle.dumps(both[1:]), function

        worker = this_host().spawn_procs().spawn("w", Worker, scaled)
        for _ in range(2):
            value, same, pickled, back = worker.dump.call_one(scaled).get()
            print(value, same, back is scaled, pickle.loads(pickled)[0] is scaled)
            SCALE = 3
        """,
        "4 True True True\n6 False True True",
    )


def test_source_shows_where_the_file_of_the_script_is_gone(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        CLASSES
        + textwrap.dedent("""
        import linecache, os

        class Worker(Actor):
            @endpoint
            def source(self):
                os.rename(__file__, __file__ + ".old")  # which the script has read already
                return inspect.getsource(Config), inspect.getsource(double)

        linecache.getlines(__file__)
        got = this_host().spawn_procs().spawn("w", Worker).source.call_one().get()
        os.rename(__file__ + ".old", __file__)
        print(got == (inspect.getsource(Config), inspect.getsource(double)))
        """)
    )
    done = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": package_path()},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "the script runs\nTrue\n"


def test_a_way_to_pickle_that_the_script_registers_is_known_to_actors() -> None:
    succeeds(
        """
        class Held:
            def __init__(self, x): self.x, self.call = x, lambda: x

        copyreg.pickle(Held, lambda held: (Held, (held.x,)))

        class Worker(Actor):
            @endpoint
            def next(self, held):
                return Held(pickle.loads(pickle.dumps(held)).x + 1)

        print(this_host().spawn_procs().spawn("w", Worker).next.call_one(Held(1)).get().call())
        """,
        "2",
    )


def test_each_actor_finds_its_own_class_by_name_and_the_newest_of_a_name() -> None:
    succeeds(
        """
        class Worker(Actor):
            @endpoint
            def keep(self, value):
                self.kept = value

            @endpoint
            def dump(self):
                return pickle.dumps(self.kept)

        procs = this_host().spawn_procs()
        first, second = procs.spawn("first", Worker), procs.spawn("second", Worker)
        first.keep.call_one(Config(1)).get()
        class Config:
            edited = True
        second.keep.call_one(Config()).get()
        for actor in (first, second):
            print(hasattr(pickle.loads(actor.dump.call_one().get()), "edited"))
        first.keep.call_one(Config()).get()
        print(type(pickle.loads(first.dump.call_one().get())) is Config)
        """,
        "True\nTrue\nTrue",
    )


def test_an_annotation_that_cannot_be_sent_keeps_nothing_from_travelling() -> None:
    succeeds(
        """
        import threading
        LOCK = threading.Lock()

        class Trainer:
            def go(self): return LOCK

        @dataclass
        class Options:
            size: int
            trainer: Trainer | None = None

        class Worker(Actor):
            @endpoint
            def ask(self, options):
                return options.size, pickle.loads(pickle.dumps(options)) == options

        print(this_host().spawn_procs().spawn("w", Worker).ask.call_one(Options(3)).get())
        """,
        "(3, True)",
    )


def test_a_module_that_only_an_annotation_names_is_imported_once_asked_for() -> None:
    succeeds(
        """
        import sqlite3.dbapi2

        @dataclass
        class Options:
            connection: sqlite3.dbapi2.Connection

        class Worker(Actor):
            @endpoint
            def ask(self, options):
                before = "sqlite3" in sys.modules
                return before, typing.get_type_hints(Options)["connection"].__name__

        print(this_host().spawn_procs().spawn("w", Worker).ask.call_one(Options(3)).get())
        """,
        "(False, 'Connection')",
    )


def test_a_result_that_cannot_be_read_names_its_call_and_its_rank() -> None:
    succeeds(
        """
        def refuse(): raise ValueError("not here")

        class Refuses:
            def __reduce__(self): return refuse, ()

        class Worker(Actor):
            @endpoint
            def give(self):
                return Refuses() if context().actor_instance.rank.rank == 1 else 1

        workers = this_host().spawn_procs({"gpus": 2}).spawn("workers", Worker)
        for future in (workers.give.call(), workers.slice(gpus=1).give.call_one()):
            try:
                future.get()
            except ValueError as error:
                print(error)
        """,
        "what came of workers.give() on {'gpus': 1/2} could not be read here: not here\n"
        "what came of workers.give() could not be read here: not here",
    )


def test_a_class_that_cannot_be_sent_is_an_error_that_says_the_way_to_the_culprit() -> None:
    succeeds(
        """
        import threading
        LOCK = threading.Lock()

        class A(Actor):
            @endpoint
            def go(self): return LOCK

        try:
            this_host().spawn_procs().spawn("a", A)
        except TypeError as error:
            print(error)
        """,
        "the class of spawn('a', A, ...) cannot be sent: A.go uses the global LOCK, a _thread.lock"
        " (make it inside the actor, or give its class a __getstate__): cannot pickle"
        " '_thread.lock' object",
    )
