"""Host and proc meshes: their geometry, their procs, and how they are begun and ended."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import pytest

from helpers.actors import Counter, Echo, HostUser, Ranks
from helpers.waiting import is_alive, wait_gone
from monarch.actor import Actor, Extent, endpoint, this_host, this_proc

pytestmark = pytest.mark.both

if TYPE_CHECKING:
    from conftest import Spawn


def test_a_call_on_a_two_by_two_mesh_returns_values_in_row_major_order(spawn: Spawn) -> None:
    procs = spawn({"gpus": 2, "z": 2})
    values = procs.spawn("a", Counter, 5).get.call().get()
    assert dict(values.extent) == {"gpus": 2, "z": 2}
    assert [(dict(point), value) for point, value in values.items()] == [
        ({"gpus": 0, "z": 0}, 5),
        ({"gpus": 0, "z": 1}, 5),
        ({"gpus": 1, "z": 0}, 5),
        ({"gpus": 1, "z": 1}, 5),
    ]
    assert [point.rank for point, _ in values.items()] == [0, 1, 2, 3]


def test_slices_number_messages_by_slice_and_instances_by_mesh(
    spawn: Spawn,
) -> None:
    ranks = spawn({"gpus": 2, "z": 2}).spawn("a", Ranks)
    part = ranks.slice(gpus=1)
    assert part.message_rank.call().get().values() == [{"z": 0}, {"z": 1}]
    assert part.message_extent.call().get().values() == [{"z": 2}, {"z": 2}]
    assert part.instance_rank.call().get().values() == [{"gpus": 1, "z": 0}, {"gpus": 1, "z": 1}]


def test_each_proc_is_a_process_of_its_own(spawn: Spawn) -> None:
    pids = spawn(3).spawn("a", Echo).pid.call().get().values()
    assert len({os.getpid(), *pids}) == 4


def test_two_actors_on_one_mesh_share_its_processes(spawn: Spawn) -> None:
    procs = spawn(2)
    first = procs.spawn("first", Echo).pid.call().get().values()
    second = procs.spawn("second", Echo).pid.call().get().values()
    assert first == second


def test_extent_sizes_and_len_agree_on_every_kind_of_mesh(spawn: Spawn) -> None:
    procs = spawn({"a": 2, "b": 3})
    actors = procs.spawn("x", Counter)
    for mesh in (procs, actors, actors.get.call().get()):
        assert isinstance(mesh.extent, Extent)
        assert dict(mesh.extent) == {"a": 2, "b": 3}
        assert mesh.sizes == {"a": 2, "b": 3}
        assert mesh.size() == 6
        assert mesh.size("b") == 3
        assert len(mesh) == 6
        part = mesh.slice(b=slice(1, 3))
        assert part.sizes == {"a": 2, "b": 2}
        assert mesh.slice(a=1).sizes == {"b": 3}
        assert mesh.flatten("n").sizes == {"n": 6}
        assert mesh.rename(a="first").sizes == {"first": 2, "b": 3}
        assert mesh.split(b=("c", "d"), d=1).sizes == {"a": 2, "c": 3, "d": 1}


def test_slices_of_slices_address_the_elements_of_the_original(spawn: Spawn) -> None:
    ranks = spawn({"a": 2, "b": 3}).spawn("x", Ranks)
    part = ranks.slice(b=slice(1, 3)).slice(b=1)
    assert part.instance_rank.call().get().values() == [{"a": 0, "b": 2}, {"a": 1, "b": 2}]
    strided = ranks.slice(b=slice(0, 3, 2))
    assert [rank["b"] for rank in strided.instance_rank.call().get().values()] == [0, 2, 0, 2]


def test_rank_zero_is_reached_the_same_way_in_any_shape(spawn: Spawn) -> None:
    ranks = spawn({"a": 2, "b": 2}).spawn("x", Ranks)
    assert ranks.flatten("rank").slice(rank=0).instance_rank.call_one().get() == {"a": 0, "b": 0}
    assert ranks.flatten("rank").slice(rank=3).instance_rank.call_one().get() == {"a": 1, "b": 1}


@pytest.mark.parametrize(
    ("selection", "error"),
    [
        ({"nonsense": 0}, TypeError),
        ({"a": 2}, IndexError),
        ({"a": -1}, IndexError),
        ({"a": slice(1, 1)}, ValueError),
        ({"a": slice(5, 9)}, ValueError),
    ],
)
def test_a_selection_outside_the_mesh_is_refused_at_once(
    spawn: Spawn, selection: dict[str, Any], error: type[Exception]
) -> None:
    procs = spawn({"a": 2})
    actors = procs.spawn("x", Counter)
    for mesh in (procs, actors):
        with pytest.raises(error):
            mesh.slice(**selection)


def test_a_negative_step_is_refused_instead_of_selecting_a_wrong_rank(spawn: Spawn) -> None:
    with pytest.raises(ValueError):
        spawn({"a": 2}).slice(a=slice(None, None, -1))


def test_spawning_on_a_slice_of_procs_renumbers_the_ranks(spawn: Spawn) -> None:
    procs = spawn({"a": 2, "b": 2})
    ranks = procs.slice(b=1).spawn("x", Ranks)
    assert dict(ranks.extent) == {"a": 2}
    assert ranks.instance_rank.call().get().values() == [{"a": 0}, {"a": 1}]
    assert ranks.at_start.call().get().values() == [{"a": 0}, {"a": 1}]
    all_pids = procs.spawn("y", Ranks).pid.call().get()
    assert ranks.pid.call().get().values() == [all_pids.item(a=0, b=1), all_pids.item(a=1, b=1)]


def test_a_mesh_can_be_sliced_and_called_while_its_procs_are_still_starting(spawn: Spawn) -> None:
    procs = spawn({"a": 2, "b": 2})
    part = procs.slice(a=1).spawn("x", Ranks).slice(b=0)
    assert part.instance_rank.call_one().get() == {"b": 0}


def test_no_per_host_gives_one_proc_without_dimensions() -> None:
    procs = this_host().spawn_procs()
    try:
        assert dict(procs.extent) == {}
        assert len(procs) == 1
        assert procs.spawn("a", Ranks).instance_rank.call_one().get() == {}
    finally:
        procs.stop().get()


def test_this_host_and_this_proc_of_the_client_have_no_dimensions() -> None:
    assert dict(this_host().extent) == {}
    assert len(this_host()) == 1
    assert dict(this_proc().extent) == {}
    assert this_host().initialized.get()
    assert this_proc().initialized.get()


def test_this_proc_of_the_client_runs_actors_in_the_clients_own_process() -> None:
    actor = this_proc().spawn("inside", Echo)
    try:
        assert actor.pid.call_one().get() == os.getpid()
    finally:
        actor.stop().get()


def test_actors_in_the_clients_process_get_copies_of_what_they_are_sent() -> None:
    actor = this_proc().spawn("inside", Echo)
    try:
        value = [1, 2]
        returned = actor.say.call_one(value).get()
        assert returned == value
        assert returned is not value
    finally:
        actor.stop().get()


def test_an_actor_spawns_procs_on_its_own_host(spawn: Spawn) -> None:
    own, others = spawn(1).spawn("user", HostUser).from_this_host.call_one().get()
    assert len({own, *others}) == 3


def test_an_actor_spawns_other_actors_in_its_own_process(spawn: Spawn) -> None:
    own, other = spawn(1).spawn("user", HostUser).from_this_proc.call_one().get()
    assert own == other != os.getpid()


def test_this_host_compares_equal_hashes_and_differs_from_other_things() -> None:
    assert this_host() == this_host()
    assert hash(this_host()) == hash(this_host())
    assert this_host() != None  # noqa: E711 - comparing with a non-mesh must not raise
    assert this_host() != 3


@pytest.mark.parametrize("count", [1, 4])
def test_host_mesh_exists_for_any_number_of_procs(spawn: Spawn, count: int) -> None:
    procs = spawn(count)
    more = procs.host_mesh.spawn_procs(per_host={"more": 1})
    try:
        assert len(more.spawn("a", Echo).pid.call().get().values()) == 1
    finally:
        more.stop().get()


def test_initialized_says_when_the_procs_run(spawn: Spawn) -> None:
    assert spawn(2).initialized.get()


def test_leaving_a_with_block_stops_the_procs() -> None:
    with this_host().spawn_procs(per_host={"n": 2}) as procs:
        pids = procs.spawn("a", Echo).pid.call().get().values()
        assert all(is_alive(pid) for pid in pids)
    for pid in pids:
        assert not is_alive(pid)


def test_leaving_an_async_with_block_stops_the_procs() -> None:
    async def main() -> list[int]:
        async with this_host().spawn_procs(per_host={"n": 2}) as procs:
            return (await procs.spawn("a", Echo).pid.call()).values()

    for pid in asyncio.run(main()):
        wait_gone(pid)


def test_an_exception_in_a_with_block_passes_through_and_still_stops_the_procs() -> None:
    pids: list[int] = []

    def fails_inside() -> None:
        with this_host().spawn_procs(per_host={"n": 1}) as procs:
            pids.extend(procs.spawn("a", Echo).pid.call().get().values())
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fails_inside()
    wait_gone(pids[0])


def test_a_stopped_mesh_can_be_neither_entered_nor_spawned_on(spawn: Spawn) -> None:
    procs = spawn(1)
    procs.stop().get()
    with pytest.raises(RuntimeError, match="stopped"):
        procs.spawn("a", Echo)
    with pytest.raises(RuntimeError, match="stopped"), procs:
        pass

    async def enter() -> None:
        async with procs:
            pass

    with pytest.raises(RuntimeError, match="stopped"):
        asyncio.run(enter())


@pytest.mark.parametrize("size", [0, -1])
def test_a_size_below_one_is_refused_at_once(size: int) -> None:
    with pytest.raises((ValueError, OverflowError), match="gpus"):
        this_host().spawn_procs(per_host={"gpus": size})


def test_proc_bind_must_have_one_entry_for_each_proc() -> None:
    with pytest.raises(ValueError, match="1.*4"):
        this_host().spawn_procs(per_host={"n": 4}, proc_bind=[{"cpus": "0"}])


@pytest.mark.processes("the CPUs of a process")
def test_proc_bind_places_each_proc_on_its_cpus(spawn: Spawn) -> None:
    class Affinity(Actor):
        @endpoint
        def cpus(self) -> list[int]:
            return sorted(os.sched_getaffinity(0))

    first = min(os.sched_getaffinity(0))
    procs = spawn(1, proc_bind=[{"cpus": str(first)}])
    assert procs.spawn("a", Affinity).cpus.call_one().get() == [first]


def test_a_name_may_be_given_to_a_mesh_and_need_not_be_unique(spawn: Spawn) -> None:
    first = spawn(1, name="my procs")
    second = spawn(1, name="my procs")
    assert (
        first.spawn("a", Echo).pid.call_one().get() != second.spawn("a", Echo).pid.call_one().get()
    )


def test_to_table_draws_the_mesh_as_a_grid(spawn: Spawn) -> None:
    procs = spawn({"z": 2, "gpus": 2})
    here = os.uname().nodename
    title, *lines = procs.to_table().split("\n")
    assert title == repr(procs)
    assert [line.split() for line in lines] == [
        ["z\\gpus", "0", "1"],
        ["0", here, "·", "gpu[0]", here, "·", "gpu[1]"],
        ["1", here, "·", "gpu[2]", here, "·", "gpu[3]"],
    ]
    assert procs.slice(gpus=1).to_table().split("\n")[3].split() == ["1", here, "·", "gpu[3]"]
    assert this_host().to_table().split("\n")[-1].strip() == here


def test_to_table_shows_pids_on_request_and_notebooks_get_html(spawn: Spawn) -> None:
    procs = spawn({"workers": 2})
    pids = procs.spawn("e", Echo).pid.call().get().values()
    here = os.uname().nodename
    table = procs.to_table(pids=True)
    assert [f"{here} · gpu[{rank}] · {pid}" in table for rank, pid in enumerate(pids)] == [
        True,
        True,
    ]
    shown = procs._repr_html_()
    assert shown is not None
    assert f"<tr><th>1</th><td>{here} · gpu[1]</td></tr>" in shown
    assert here in (this_host()._repr_html_() or "")


def test_the_repr_of_a_mesh_names_its_kind_and_its_shape(spawn: Spawn) -> None:
    procs = spawn({"gpus": 2, "z": 3})
    assert "ProcMesh" in repr(procs)
    assert "gpus" in repr(procs)
    actors = procs.spawn("my counters", Counter)
    assert "Counter" in repr(actors)
    assert "gpus" in repr(actors)
    assert "HostMesh" in repr(this_host())


def test_procs_inherit_the_environment_and_the_working_directory_of_the_client(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Where(Actor):
        @endpoint
        def cwd(self) -> str:
            return os.getcwd()

        @endpoint
        def variable(self) -> str | None:
            return os.environ.get("MONARCH_TEST_VARIABLE")

    monkeypatch.setenv("MONARCH_TEST_VARIABLE", "set just before the spawn")
    where = spawn(1).spawn("where", Where)
    assert where.cwd.call_one().get() == os.getcwd()
    assert where.variable.call_one().get() == "set just before the spawn"


def test_endpoints_never_run_on_the_main_thread_of_a_proc(spawn: Spawn) -> None:
    class Threads(Actor):
        def __init__(self) -> None:
            import threading

            self.init_thread = threading.get_ident()

        @endpoint
        def where(self) -> tuple[bool, bool]:
            import threading

            return (
                threading.current_thread() is threading.main_thread(),
                threading.get_ident() == self.init_thread,
            )

    procs = spawn(1)
    assert procs.spawn("a", Threads).where.call_one().get() == (False, True)
