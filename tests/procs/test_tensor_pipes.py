"""Pipes: processes that make values for ranks."""

# What torch returns here is more than its annotations say.
# mypy: disable-error-code="attr-defined, union-attr, no-untyped-call, arg-type"

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from helpers.kept_values import values_kept

pytest.importorskip("torch", reason="distributed tensors need torch")

import torch

from monarch import inspect, remote
from monarch.tensor_engine import RemoteException, create_pipe, remote_generator

pytestmark = [
    pytest.mark.torch,
    pytest.mark.may_keep("threads", "descriptors"),  # torch's
    pytest.mark.processes("a pipe starts processes"),
]


def at(tensor: Any, rank: int) -> Any:
    return inspect(tensor, gpus=rank).tolist()


def count_up(pipe: Any, size: int, *, until: int) -> None:
    x = torch.zeros(size)
    for _ in range(until):
        x += 1 + pipe.ranks["gpus"]
        pipe.send({"batch": x, "pid": torch.tensor(os.getpid()), "sizes": pipe.sizes})


@remote_generator(count_up, max_messages=2)
def counting(pipe: Any, size: int, *, until: int) -> Iterator[Any]:
    assert pipe.sizes == {"gpus": 2}
    for _ in range(until):
        yield {"batch": torch.empty(size), "pid": torch.empty((), dtype=torch.int64), "sizes": None}


def test_each_rank_gets_what_its_process_sends(mesh: Any) -> None:
    pipe = counting(3, until=10)
    received = [pipe.recv() for _ in range(10)]
    for step, value in enumerate(received, 1):
        assert value["batch"].shape == (3,)
        assert at(value["batch"], 0) == [step] * 3
        assert at(value["batch"] * 2, 1) == [4 * step] * 3
    mine = set(remote(os.getpid).call().get().values())
    theirs = {at(received[0]["pid"], rank) for rank in range(2)}
    assert len(mine | theirs) == 4
    with pytest.raises(RuntimeError, match="nothing more comes"):
        pipe.recv()
    pipe.drop()
    pipe.drop()


def echo(pipe: Any) -> None:
    while True:
        value = pipe.recv()
        pipe.send(value["x"] + value["add"])


@remote_generator(echo)
def echoing(pipe: Any) -> Iterator[Any]:
    while True:
        yield pipe.recv()["x"].clone()


def test_a_process_is_sent_tensors_of_its_rank(mesh: Any) -> None:
    pipe = echoing()
    for step in range(3):
        pipe.send({"x": torch.ones(step + 1) * mesh.rank("gpus"), "add": step})
    for step in range(3):
        answer = pipe.recv()
        assert answer.shape == (step + 1,)
        assert at(answer, 1) == [1.0 + step] * (step + 1)
    with pytest.raises(RuntimeError, match="send before recv"):
        pipe.recv()
    pipe.drop()


def test_what_was_sent_is_let_go(mesh: Any) -> None:
    pipe = create_pipe(remote("builtins.id", propagate=lambda pipe: iter(())))  # asks for nothing
    before = max(remote(values_kept).call().get().values())
    for _ in range(10):
        pipe.send({"x": torch.ones(1)})
    torch.ones(1)
    assert max(remote(values_kept).call().get().values()) <= before + 2
    pipe.drop()


def test_a_pipe_of_a_slice_has_one_process(mesh: Any) -> None:
    with mesh.slice(gpus=slice(1, 2)).activate():
        fakes = lambda pipe: iter([torch.empty(1)])  # noqa: E731
        pipe = create_pipe(remote(lambda pipe: pipe.send(torch.tensor([7.0])), propagate=fakes))
        assert inspect(pipe.recv()).tolist() == [7.0]
        pipe.drop()


def fail(pipe: Any) -> None:
    pipe.send(torch.ones(1))
    raise KeyError("no more data")


def test_the_failure_of_a_process_is_told_where_its_values_are_fetched(mesh: Any) -> None:
    pipe = create_pipe(remote(fail, propagate=lambda pipe: iter([torch.empty(1)] * 3)))
    first, second, third = pipe.recv(), pipe.recv(), pipe.recv()
    assert at(first, 1) == [1.0]
    for failed in (second, third):
        with pytest.raises(RemoteException, match="no more data") as raised:
            inspect(failed)
        assert raised.value.controller_frames[-1].file == __file__
    assert at(torch.ones(1), 1) == [1.0]
    pipe.drop()


def test_a_process_that_waits_is_ended_with_the_pipe(mesh: Any) -> None:
    pipe = echoing()
    waits = counting(1, until=1000)  # ahead by two, and waits
    assert at(waits.recv()["batch"], 0) == [1.0]
    pipe.drop()
    waits.drop()


def test_wrong_calls_are_refused_at_once(mesh: Any) -> None:
    with pytest.raises(ValueError, match="ordinary values"):
        counting(torch.ones(1), until=3)
    with pytest.raises(TypeError, match="generator of fakes"):
        create_pipe(fail)
    with pytest.raises(ValueError, match="max_messages=0"):
        remote_generator(fail, max_messages=0)
