"""Small pure pieces of the runtime: what calls carry, what procs print, how procs start."""

from __future__ import annotations

import io
import pickle
import sys
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.waiting import PATIENCE
from monarch._core import extension
from monarch._core.calls.message import NO_EXTENT, SETTLE, SUPERVISE, decode_meta, encode_meta
from monarch._core.hub.prints import NO_AUTHOR, Note
from monarch._core.hub.spawn_requests import Command, SpawnRequest, Start
from monarch._core.mesh.bootstrap import (
    BootstrapCommand,
    check_binding,
    choose_command,
    default_bootstrap_cmd,
    python_bootstrap_cmd,
)
from monarch._core.processes import output
from monarch._core.processes.output import Output, Source
from monarch._core.processes.specs import needs_exec
from monarch._core.shape import Extent, Point
from monarch._core.wire.address import ActorAddress, ProcAddress

TRAINER = Source("trainers", 1, "gpus=1", "machine", 0, 4, alone=False)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,12}", fullmatch=True)


# what a call says beside its arguments


@given(NAMES, st.dictionaries(NAMES, st.integers(1, 10**6), max_size=5))
def test_a_call_says_its_method_and_the_geometry_of_what_it_was_sent_to(
    method: str, sizes: dict[str, int]
) -> None:
    extent = Extent(list(sizes), list(sizes.values()))
    got_method, got_extent = decode_meta(encode_meta(method, extent))
    assert got_method == method
    assert got_extent == extent
    assert list(got_extent.labels) == list(sizes)


def test_names_beyond_ascii_survive() -> None:
    extent = Extent(["größe"], [3])
    assert decode_meta(encode_meta("méthode", extent)) == ("méthode", extent)


@given(
    st.binary(max_size=20)
    | st.sampled_from([b"echo\0x", b"echo\0x\0-1", b"\0\xff", b"\xff\0\0\xff"])
)
def test_any_bytes_name_an_endpoint_so_that_who_sent_them_is_answered(meta: bytes) -> None:
    name, _ = decode_meta(meta)
    assert isinstance(name, str)


@pytest.mark.parametrize("meta", [SUPERVISE, SETTLE])
def test_messages_of_the_system_have_names_that_no_method_has(meta: bytes) -> None:
    name, extent = decode_meta(meta)
    assert not name.isidentifier()
    assert name.encode() == meta
    assert extent is NO_EXTENT


# what the client writes


def show(shown: Output) -> None:
    printer = output.Printer()
    printer.put(shown)
    printer.close()


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_lines_are_written_to_the_stream_of_that_moment_in_one_piece(
    stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []

    class File(io.StringIO):
        def write(self, text: str) -> int:
            written.append(text)
            return len(text)

    monkeypatch.setattr(sys, stream, File())
    show(Output(TRAINER, stream, 1.0, [(NO_AUTHOR, "one\n"), (Note("an_actor"), "two")]))
    assert written == ["[trainers 1] one\n[trainers 1] \n[trainers 1] two\n"]


@pytest.mark.parametrize("file", [None, "closed"])
def test_lines_for_a_terminal_that_is_gone_are_dropped(
    file: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stdout", closed if file else None)
    show(Output(TRAINER, "stdout", 1.0, [(NO_AUTHOR, "one")]))


def test_a_printer_that_never_printed_has_no_thread_and_nothing_to_end() -> None:
    before = threading.active_count()
    output.Printer().close()
    assert threading.active_count() == before


def test_a_printer_goes_on_where_what_shows_its_lines_fails(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        due = None

        def show(self, output: Output) -> None:
            raise ZeroDivisionError("in a progress bar")

        def expire(self) -> None: ...
        def flush(self) -> None: ...

    printer = output.Printer()
    printer._view = Broken()
    for text in ("one", "two"):
        printer.put(Output(TRAINER, "stdout", 1.0, [(NO_AUTHOR, text)]))
    printer.close()
    assert capsys.readouterr().out == "[trainers 1] one\n[trainers 1] two\n"
    assert caplog.text.count("ZeroDivisionError: in a progress bar") == 2


def test_lines_are_written_even_where_nothing_can_show_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(write: Any) -> Any:
        raise ImportError("no module to show them with")

    monkeypatch.setattr(extension.output_view, "guest", fail)
    monkeypatch.setenv("FORCE_COLOR", "1")
    printer = output.Printer()
    for text in ("one", "two"):
        printer.put(Output(TRAINER, "stdout", 1.0, [(NO_AUTHOR, text)]))
    printer.close()
    assert capsys.readouterr().out == "[trainers 1] one\n[trainers 1] two\n"
    assert printer._waiting == 0  # or, in time, what comes would be left out


def test_a_printer_goes_on_after_any_failure_on_its_thread(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Broken:
        due: float | None = 0.0

        def show(self, output: Output) -> None:
            raise ZeroDivisionError("in show")

        def expire(self) -> None:
            self.due = None
            raise ZeroDivisionError("in expire")

        def flush(self) -> None:
            raise ZeroDivisionError("in flush")

    def fail() -> None:
        raise ZeroDivisionError("in a callback")

    printer, called, view = output.Printer(), threading.Event(), Broken()
    printer._view = view
    printer.put(fail)
    printer.put(Output(TRAINER, "stdout", 1.0, [(NO_AUTHOR, "one")]))
    printer.put(called.set)
    assert called.wait(PATIENCE)
    assert view.due is None
    printer.close()
    assert capsys.readouterr().out == "[trainers 1] one\n"


def test_a_printer_that_is_closed_has_written_everything_in_order_and_has_no_thread(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = threading.active_count()
    printer = output.Printer()
    for i in range(100):
        printer.put(Output(TRAINER._replace(rank=i), "stdout", 1.0, [(NO_AUTHOR, "line")]))
    printer.close()
    assert capsys.readouterr().out == "".join(f"[trainers {i}] line\n" for i in range(100))
    assert threading.active_count() == before


# when a fork is not enough


@pytest.mark.parametrize(
    "name",
    ["LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHASHSEED", "MALLOC_ARENA_MAX", "OMP_NUM_THREADS", "LC_ALL",
     "LANG", "MKL_NUM_THREADS", "GLIBC_TUNABLES"],
)  # fmt: skip
def test_a_change_that_acts_before_the_interpreter_starts_needs_a_new_one(name: str) -> None:
    base = {"PATH": "/bin", "HOME": "/root"}
    assert needs_exec({**base, name: "1"}, base)
    assert needs_exec(base, {**base, name: "1"})
    assert needs_exec({**base, name: "1"}, {**base, name: "2"})
    assert not needs_exec({**base, name: "1"}, {**base, name: "1"})


@given(
    st.dictionaries(NAMES, st.text(max_size=3), max_size=6),
    st.dictionaries(NAMES, st.text(max_size=3), max_size=6),
)
def test_other_changes_do_not(env: dict[str, str], base: dict[str, str]) -> None:
    env, base = ({f"MY_{name}": value for name, value in one.items()} for one in (env, base))
    assert not needs_exec(env, base)


@pytest.mark.parametrize(
    "name",
    ["CUDA_VISIBLE_DEVICES", "RANK", "MASTER_ADDR", "HF_HOME", "MY_PYTHON", "OLD_LD_PRELOAD"],
)
def test_variables_that_are_read_later_do_not(name: str) -> None:
    assert not needs_exec({name: "1"}, {})


def test_requests_to_spawn_pickle() -> None:
    start = Start(
        0,
        Command("/usr/bin/python3", None, ("-m", "x")),
        {"A": "1"},
        cpus="0-3",
        nodes=(("membind", "0"),),
    )
    address = ProcAddress("host", "client")
    request = SpawnRequest(
        "uid",
        "procs",
        {"hosts": 2, "gpus": 4},
        4,
        (start,),
        ActorAddress(address, 5),
        address,
        ["/src"],
        "/",
        None,
        ("torch",),
        {"x": 1},
    )
    assert pickle.loads(pickle.dumps(request)) == request


# commands


def test_a_command_has_what_it_was_given_and_defaults() -> None:
    command = BootstrapCommand(
        "/bin/python", "name", ["-m", "x"], {"A": "1", "B": None}, inherit_env=False
    )
    assert (command.program, command.arg0, command.args) == ("/bin/python", "name", ["-m", "x"])
    assert (command.env, command.inherit_env) == ({"A": "1", "B": None}, False)
    assert command.as_command() == Command("/bin/python", "name", ("-m", "x"))
    plain = BootstrapCommand("/bin/python")
    assert (plain.arg0, plain.args, plain.env, plain.inherit_env) == (None, [], {}, True)


def test_a_command_does_not_share_what_it_was_given() -> None:
    args, env = ["-m"], {"A": "1"}
    command = BootstrapCommand("p", args=args, env=env)
    args.append("x")
    env["A"] = "2"
    assert (command.args, command.env) == (["-m"], {"A": "1"})


def test_changes_to_the_environment_make_a_copy() -> None:
    command = BootstrapCommand("p", args=["-m"], env={"A": "1", "B": "2"})
    changed = command.with_env({"B": None, "C": "3"})
    assert changed.env == {"A": "1", "B": None, "C": "3"}
    changed.args.append("x")
    assert (command.env, command.args) == ({"A": "1", "B": "2"}, ["-m"])
    assert (changed.program, changed.inherit_env) == ("p", True)


@pytest.mark.parametrize(
    ("inherit", "expected"),
    [(True, {"HOME": "/root", "A": "new"}), (False, {"A": "new"})],
)
def test_the_environment_is_that_of_the_launcher_with_the_changes(
    inherit: bool, expected: dict[str, str]
) -> None:
    base = {"HOME": "/root", "A": "old", "GONE": "x"}
    start = Start(0, None, {"A": "new", "GONE": None, "NEVER": None}, inherit_env=inherit)
    assert start.environment(base) == expected
    assert base == {"HOME": "/root", "A": "old", "GONE": "x"}


@pytest.mark.parametrize("env", [{"A": 1}, {1: "A"}, {"A": b"x"}, {None: "x"}])
def test_environments_hold_texts_only(env: Any) -> None:
    with pytest.raises(TypeError, match="env maps names to strings"):
        BootstrapCommand("p", env=env)
    with pytest.raises(TypeError, match="env maps names to strings"):
        BootstrapCommand("p").with_env(env)


def test_commands_compare_by_what_they_do_and_cannot_be_keys() -> None:
    assert BootstrapCommand("p", env={"A": "1"}) == BootstrapCommand("p", env={"A": "1"})
    assert BootstrapCommand("p") != BootstrapCommand("p", "name")
    assert BootstrapCommand("p") != "p"
    with pytest.raises(TypeError, match="unhashable"):
        hash(BootstrapCommand("p"))


def test_commands_pickle_and_show_how_they_were_made() -> None:
    command = BootstrapCommand("p", "n", ["-m"], {"A": None}, inherit_env=False)
    assert pickle.loads(pickle.dumps(command)) == command
    assert eval(repr(command)) == command


def test_the_default_command_is_what_a_fork_does_and_others_are_not() -> None:
    assert default_bootstrap_cmd().is_default
    assert default_bootstrap_cmd().with_env({"A": "1"}).is_default
    assert python_bootstrap_cmd(sys.executable).is_default
    assert not python_bootstrap_cmd("/other/python").is_default
    assert not BootstrapCommand(sys.executable).is_default
    emptied = default_bootstrap_cmd()
    emptied.inherit_env = False
    assert not emptied.is_default


def test_a_choice_of_command_is_one_or_a_function_of_the_place_or_none() -> None:
    default, other = default_bootstrap_cmd(), BootstrapCommand("p")
    place = Point(1, Extent(["gpus"], [4]))
    asked: list[Point] = []

    def choose(point: Point) -> BootstrapCommand:
        asked.append(point)
        return other

    assert choose_command(None, place, default) is default
    assert choose_command(other, place, default) is other
    assert choose_command(choose, place, default) is other
    assert asked == [place]


@pytest.mark.parametrize("choice", ["python", lambda point: "python", 3])
def test_anything_else_is_no_choice_of_command(choice: Any) -> None:
    with pytest.raises(TypeError, match="bootstrap_command"):
        choose_command(choice, Point(0, Extent(["gpus"], [1])), default_bootstrap_cmd())


def test_bindings_are_one_for_each_proc_with_known_keys() -> None:
    assert check_binding(None, 3) == [{}, {}, {}]
    bindings = [{"cpunodebind": "0", "membind": "0"}, {"cpus": "0-3"}, {}]
    assert check_binding(bindings, 3) == bindings
    with pytest.raises(ValueError, match=r"\(2\) must equal procs_per_host \(3\)"):
        check_binding(bindings[:2], 3)
    with pytest.raises(ValueError, match=r"gpu.*cpunodebind"):
        check_binding([{"gpu": "0"}], 1)
