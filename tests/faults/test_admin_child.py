"""Questions in SQL over HTTP whose process dies, can't be interrupted, or is needed no more."""

from __future__ import annotations

import http.client
import json
import os
import select
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

from helpers.demo import Demo, demo
from helpers.waiting import wait_until
from monarch import config
from monarch._proc_stat import SYSTEM_TICKS, USER_TICKS, stat_of

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("duckdb")
pytest.importorskip("arro3.core")
child = pytest.importorskip("monarch.admin.child")

QUESTION = {"sql": "SELECT count(*) AS n FROM procs WHERE mesh = 'trainers'"}
ENDLESS = "SELECT count(*) FROM range(10_000_000) a, range(10_000_000) b WHERE (a.range * b.range) % 7 = 3"
STUBBORN = "SELECT levenshtein(repeat('x', 200_000), repeat('y', 200_000))"


@pytest.fixture
def program() -> Iterator[Demo]:
    with demo(16, "none") as found:
        yield found


def child_of(program: Demo) -> int:
    """The process that has just answered a question, and waits for another."""
    assert program.asker.post("/v1/query", QUESTION)["rows"] == [{"n": 16}]
    (child,) = program.computing
    return child


def wait_until_it_computes(child: int) -> None:
    """Wait until a process that was idle has computed for half a second."""

    def computed() -> float:
        fields = stat_of(child)
        return (int(fields[USER_TICKS]) + int(fields[SYSTEM_TICKS])) / os.sysconf("SC_CLK_TCK")

    before = computed()
    wait_until(lambda: computed() > before + 0.5, what="the process computes")


def test_where_the_child_is_killed_the_question_fails_and_the_next_is_answered(
    program: Demo,
) -> None:
    child = child_of(program)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(
            program.asker.error, "POST", "/v1/query", {"sql": ENDLESS, "timeout": 30}
        )
        wait_until_it_computes(child)
        os.kill(child, signal.SIGKILL)
        status, code, message = asked.result()
    assert (status, code) == (500, "internal_error") and "has ended by SIGKILL" in message
    assert child_of(program) != child
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)  # nothing of it is left


def test_a_question_that_can_not_be_interrupted_ends_with_its_child(program: Demo) -> None:
    child = child_of(program)
    status, code, message = program.asker.error(
        "POST", "/v1/query", {"sql": STUBBORN, "timeout": 0.5}
    )
    assert (status, code) == (504, "gateway_timeout") and "longer than 0.5 s" in message
    wait_until(lambda: child not in program.computing, what="the end of the child")
    child_of(program)


def test_a_question_that_is_not_waited_for_any_more_ends_with_its_child(program: Demo) -> None:
    child = child_of(program)
    with program.asker.open("GET", "/v1/events"):  # others go on
        connection = http.client.HTTPConnection(urlsplit(program.url).netloc, timeout=60)
        headers = {"Authorization": f"Bearer {program.token}", "Content-Type": "application/json"}
        body = json.dumps({"sql": STUBBORN, "timeout": 30})
        connection.request("POST", "/v1/query", body, headers)
        wait_until_it_computes(child)
        connection.close()
        wait_until(lambda: child not in program.computing, what="the end of the child")


def test_what_needs_more_memory_than_a_child_has_is_refused_and_ends_the_child() -> None:
    children = child._Children((config.exported(), None, None))
    with pytest.raises(MemoryError, match="this needs more than 2 GiB of memory: ask for less"):
        children.ask(bytes, (child.MEMORY + 1,), None)
    assert not children._idle


def test_a_child_ends_with_the_helper(program: Demo) -> None:
    child = child_of(program)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(
            program.asker.raw, "POST", "/v1/query", {"sql": STUBBORN, "timeout": 30}
        )
        wait_until_it_computes(child)
        ended = os.pidfd_open(child)
        try:
            os.kill(program.helper, signal.SIGKILL)
            assert select.select([ended], [], [], 60)[0]
        finally:
            os.close(ended)
        with pytest.raises(OSError):
            asked.result()


def test_more_questions_than_children_wait_for_each_other(program: Demo) -> None:
    with ThreadPoolExecutor(6) as pool:
        answers = [pool.submit(program.asker.post, "/v1/query", QUESTION) for _ in range(12)]
        assert all(answer.result()["rows"] == [{"n": 16}] for answer in answers)
    assert 1 <= len(program.computing) <= 2
