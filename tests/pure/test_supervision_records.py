from __future__ import annotations

import pickle
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarch._core.calls.exception_pickle import dump_exception
from monarch._core.supervision.failure import (
    ABORTED,
    EXCEPTION,
    EXITED,
    HOST,
    KILLED,
    LINK,
    MISSING,
    STOPPED,
    UNHANDLED,
    UNSTARTED,
    Failure,
    MeshFailure,
    client_lost,
    exit_reason,
    frozen_reason,
    host_lost,
    not_attached,
    not_let_in,
)
from monarch._core.supervision.tombstones import Tombstones
from monarch._words import HOST_NAMES

CAUSES = [EXCEPTION, ABORTED, KILLED, EXITED, HOST, LINK, STOPPED, MISSING, UNHANDLED]
TEXT = st.text(max_size=20)
UIDS = st.integers(0, 2**63) | TEXT

failures: st.SearchStrategy[Failure] = st.deferred(
    lambda: st.builds(
        Failure,
        st.sampled_from(CAUSES),
        TEXT,
        actor=TEXT,
        mesh=TEXT,
        mesh_uid=UIDS,
        rank=st.none() | st.integers(0, 1000),
        proc=TEXT,
        pid=st.integers(0, 2**22),
        host=TEXT,
        exit_code=st.none() | st.integers(0, 255),
        signal=st.none() | st.integers(1, 64),
        output=st.lists(TEXT, max_size=3).map(tuple),
        source=st.none() | failures,
        known=st.floats(0, allow_nan=False),
    )
)


# failures


@given(failures)
def test_a_failure_survives_pickling(failure: Failure) -> None:
    again = pickle.loads(pickle.dumps(failure))
    assert again == failure
    assert type(again) is Failure


@given(failures)
def test_the_public_face_of_a_failure_survives_pickling(failure: Failure) -> None:
    again = pickle.loads(pickle.dumps(MeshFailure(failure)))
    assert type(again) is MeshFailure
    assert again.event == failure
    assert repr(again) == repr(MeshFailure(failure))


@given(failures)
def test_every_failure_can_be_explained(failure: Failure) -> None:
    text = failure.explain()
    assert (failure.actor or failure.proc or failure.mesh or "the actor") in text
    for line in failure.reason.splitlines():
        assert line in text
    assert failure.is_stop == (failure.cause == STOPPED)


def test_an_explanation_says_who_why_where_and_the_last_output() -> None:
    failure = Failure(
        KILLED,
        "Killed(sig=9)\nprobably out of memory",
        actor="<root>.<Trainer trainers{'gpus': 0/8}>",
        proc="procs-0",
        pid=77,
        host="node5",
        output=("step 1", "step 2"),
    )
    assert failure.explain().splitlines() == [
        "The actor <root>.<Trainer trainers{'gpus': 0/8}> and all its descendants have failed:",
        "  Killed(sig=9)",
        "  probably out of memory",
        "  on proc procs-0, pid 77, node5",
        "  last output:",
        "    | step 1",
        "    | step 2",
    ]


def test_an_explanation_leaves_out_what_is_not_known() -> None:
    assert Failure(MISSING, "no such actor", proc="p").explain().splitlines() == [
        "p has failed:", "  no such actor", "  on proc p",
    ]  # fmt: skip
    assert (
        Failure(HOST, "gone", proc="tcp://node7:1", pid=7).explain().splitlines()[-1]
        == "  on host tcp://node7:1, pid 7"
    )
    assert Failure(HOST, "gone").explain().splitlines() == ["the actor has failed:", "  gone"]


def test_a_lost_host_of_a_job_is_called_as_the_job_calls_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(HOST_NAMES, "tcp://node7:1", "trainers[7]")
    assert host_lost("tcp://node7:1", "it is silent").explain().splitlines() == [
        "trainers[7] (tcp://node7:1) has failed:",
        "  the host agent is gone, and every process of that host with it: it is silent",
        "  on host trainers[7] (tcp://node7:1)",
    ]


def test_a_stop_is_told_as_a_status_and_not_as_a_failure() -> None:
    text = Failure(STOPPED, "stopped by client", actor="trainers").explain()
    assert text == "trainers has status: stopped: stopped by client"
    assert "failed" not in text


def test_the_failure_of_a_process_becomes_that_of_its_actors() -> None:
    process = Failure(EXITED, "exited with 3", proc="procs-1", pid=5, exit_code=3, output=("bye",))
    actor = process.of("<Trainer trainers>", "trainers", 99, 1)
    assert (actor.actor, actor.mesh, actor.mesh_uid, actor.rank) == (
        "<Trainer trainers>",
        "trainers",
        99,
        1,
    )
    assert (actor.proc, actor.pid, actor.exit_code, actor.output) == ("procs-1", 5, 3, ("bye",))
    assert actor.reason == "the process this actor was running on failed: exited with 3"
    assert process.actor == ""


def test_the_stop_of_a_process_stays_a_stop_for_its_actors() -> None:
    actor = Failure(STOPPED, "stopped by client", proc="p").of("a", "m", 1, 0)
    assert actor.is_stop
    assert actor.reason == "stopped by client"


@pytest.mark.parametrize(
    ("code", "number", "words"),
    [
        (None, signal.SIGKILL, "SIGKILL"),
        (None, signal.SIGSEGV, "SIGSEGV"),
        (None, 40, "signal 40"),
        (0, None, "exited with code 0"),
        (3, None, "non-zero code 3"),
    ],
)
def test_the_end_of_a_process_is_told_in_words(
    code: int | None, number: int | None, words: str
) -> None:
    assert words in exit_reason(code, number)
    if number is not None:
        assert f"sig={int(number)}" in exit_reason(code, number)


def test_the_public_face_gives_the_parts_of_the_record() -> None:
    event = Failure(EXITED, "r", mesh="trainers", rank=3, exit_code=2, signal=None, output=("x",))
    failure = MeshFailure(event, "the mesh")
    assert failure.mesh == pickle.loads(pickle.dumps(failure)).mesh == "the mesh"
    assert (failure.mesh_name, failure.ranks, failure.crashed_ranks) == ("trainers", [3], [3])
    assert (failure.cause, failure.exit_code, failure.signal, failure.last_output) == (
        EXITED,
        2,
        None,
        ("x",),
    )
    assert failure.report() == event.explain()
    assert "trainers" in repr(failure)


def test_a_failure_of_no_mesh_and_no_rank_says_so() -> None:
    failure = MeshFailure(Failure(HOST, "r"))
    assert failure.mesh_name == "<none>"
    assert failure.ranks == []


def test_a_failure_that_is_remembered_keeps_both_ends_of_long_texts() -> None:
    text = "begin" + "x" * 100_000 + "end"
    cause = Failure(EXITED, text)
    failure = Failure(EXCEPTION, text, output=("short", text), source=cause, error=b"x" * 100_000)
    brief = failure.brief()
    assert brief.source is not None
    for cut in (brief.reason, brief.output[1], brief.source.reason):
        beginning, middle, end = cut.split("\n")
        assert beginning.startswith("beginx")
        assert end.endswith("xend")
        left_out = len(text) - len(beginning) - len(end)
        assert middle == f"... ({left_out} characters are not remembered) ..."
        assert len(cut) < 20_000
    assert brief.output[0] == "short"
    assert brief.error == b"", "a part of an exception is none"
    assert Failure(EXCEPTION, "short", error=b"an exception").brief().error == b"an exception"


@pytest.mark.parametrize("more", [0, 1])
def test_a_failure_is_remembered_whole_up_to_a_limit(more: int) -> None:
    size = 16 * 1024 + more
    text, error = "x" * size, b"x" * size
    brief = Failure(EXCEPTION, text, output=(text,), error=error).brief()
    whole = [brief.reason == text, brief.output == (text,), brief.error == error]
    assert whole == [not more] * 3


def test_ends_beyond_the_limit_of_what_is_remembered_are_forgotten_oldest_first() -> None:
    ends: Tombstones[str] = Tombstones(limit=2)
    for name in ("first", "second", "third"):
        ends.note(name, Failure(EXITED, "x" * 100_000))
    assert list(ends) == ["second", "third"]
    assert all(len(failure.reason) < 20_000 for failure in ends.values())
    ends.pop("second", None)
    ends.pop("unknown", None)
    assert list(ends) == ["third"]


def test_the_exception_of_a_failure_is_that_of_the_first_cause_that_has_one() -> None:
    raised = Failure(EXCEPTION, "raised", error=dump_exception(KeyError("key")))
    owner = Failure(UNHANDLED, "its child failed", source=raised)
    for event in (raised, owner, Failure(UNHANDLED, "and its own", source=owner)):
        error = MeshFailure(event).exception
        assert isinstance(error, KeyError)
        assert error.args == ("key",)
    assert MeshFailure(Failure(UNHANDLED, "", source=Failure(KILLED, "killed"))).exception is None


# the losses of hosts and clients


def test_the_loss_of_a_host_says_why_where_that_is_known() -> None:
    lost = host_lost("tcp://node4:26600", pid=7)
    assert (lost.cause, lost.proc, lost.pid) == (HOST, "tcp://node4:26600", 7)
    assert lost.reason == "the host agent is gone, and every process of that host with it"
    other = host_lost("h", "out of contact for 4s")
    assert (other.reason, other.pid) == (f"{lost.reason}: out of contact for 4s", 0)


def test_a_host_that_was_never_reached_is_told_as_not_attached() -> None:
    lost = not_attached(host_lost("tcp://node4:26600", "nothing listens there"))
    assert (lost.cause, lost.proc) == (UNSTARTED, "tcp://node4:26600")
    assert lost.reason == "the host could not be attached: nothing listens there"


def test_a_host_that_lets_no_other_in_is_told_with_what_to_do() -> None:
    lost = not_let_in(host_lost("tcp://node4:26600", "no secret"))
    assert (lost.cause, lost.proc) == (HOST, "tcp://node4:26600")
    assert lost.reason.startswith("this process has not attached the host (attach_to_workers does")
    assert lost.reason.endswith(": no secret")


def test_the_end_of_a_client_is_the_end_of_what_it_has_started() -> None:
    lost = client_lost("client.1")
    assert (lost.cause, lost.proc) == (HOST, "client.1")
    assert lost.reason == "the client is gone, and every process that it started with it"


@pytest.mark.parametrize(("seconds", "text"), [(30.0, "30s"), (0.5, "0.5s")])
def test_the_reason_of_a_frozen_process_names_the_limit_and_its_knob(
    seconds: float, text: str
) -> None:
    assert frozen_reason(seconds) == (
        f"stopped by a signal, and ended as nothing continued it within {text} (heartbeat_timeout)"
    )
