"""Meshes over several hosts: their geometry, every way to call them, and who may call whom."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import pytest

from helpers.actors import (
    Counter,
    Desk,
    Echo,
    Failing,
    HostUser,
    Ranks,
    Recorder,
    Sender,
    open_channel,
)
from helpers.workers import Cluster
from monarch.actor import (
    Accumulator,
    Actor,
    ActorError,
    Channel,
    HostMesh,
    Point,
    Port,
    SupervisionError,
    context,
    current_rank,
    endpoint,
    get_or_spawn_controller,
    send,
    this_host,
    this_proc,
)
from monarch.errors import DeadlockError

if TYPE_CHECKING:
    from conftest import Spawn


class Home(Actor):
    """Says on which host it runs."""

    @endpoint
    def host(self) -> str:
        return own_host()

    @endpoint
    def agent(self) -> int:
        with open(f"/proc/{os.getppid()}/stat") as stat:  # of the spawner
            return int(stat.read().rpartition(")")[2].split()[1])


def own_host() -> str:
    return context().actor_instance.proc_id.rpartition("@")[2]


@pytest.fixture
def names(far_hosts: HostMesh) -> list[str]:
    """Those of the far hosts, in their order."""
    with far_hosts.spawn_procs() as procs:
        return procs.spawn("home", Home).host.call().get().values()


class Caller(Actor):
    """Calls others on behalf of the test."""

    @endpoint
    def call(self, others: Any, value: Any) -> list[Any]:
        # a mesh
        return others.say.call(value).get().values()  # type: ignore[no-any-return]

    @endpoint
    def call_one(self, other: Any, value: Any) -> Any:
        return other.say.call_one(value).get()

    @endpoint
    def choose(self, others: Any, value: Any) -> Any:
        return others.say.choose(value).get()

    @endpoint
    def stream(self, others: Any, value: Any) -> list[Any]:
        return [future.get() for future in others.say.stream(value)]

    @endpoint
    def relay(self, others: list[Any], value: Any) -> Any:
        """Pass a call on along a chain of callers."""
        if not others:
            return [value]
        first, *rest = others
        return [
            context().actor_instance.rank.rank,
            *first.relay.call_one(rest, value).get(),
        ]

    @endpoint
    def record_at(self, recorders: Any, values: list[Any]) -> None:
        for value in values:
            recorders.record.broadcast(value)
        recorders.recorded.call().get()

    @endpoint
    def fail_at(self, failing: Any) -> str:
        try:
            failing.fail.call().get()
        except ValueError as error:
            return str(error)
        return "no error"


class AsyncCaller(Actor):
    @endpoint
    async def call(self, others: Any, value: Any) -> list[Any]:
        return (await others.say.call(value)).values()  # type: ignore[no-any-return]  # a mesh

    @endpoint
    async def gather(self, others: list[Any], value: Any) -> list[Any]:
        return list(await asyncio.gather(*(other.say.call_one(value) for other in others)))


# geometry


def test_hosts_stand_in_the_order_in_which_their_workers_were_listed(
    cluster: Cluster, spawn_far: Spawn
) -> None:
    expected = [cluster.workers.agent(index) for index in range(3)]
    assert spawn_far(1).spawn("home", Home).agent.call().get().values() == expected
    with cluster.hosts.slice(hosts=slice(1, 3)).spawn_procs({"n": 2}) as procs:
        values = procs.spawn("home", Home).agent.call().get()
        assert dict(values.extent) == {"hosts": 2, "n": 2}
        assert values.values() == [expected[1], expected[1], expected[2], expected[2]]


def test_ranks_and_extents_are_those_of_one_mesh(spawn_far: Spawn) -> None:
    ranks = spawn_far({"gpus": 2}).spawn("ranks", Ranks)
    values = ranks.message_rank.call().get()
    assert dict(values.extent) == {"hosts": 3, "gpus": 2}
    assert values.values() == [
        {"hosts": host, "gpus": gpu} for host in range(3) for gpu in range(2)
    ]
    assert ranks.instance_rank.call().get().values() == values.values()
    assert ranks.at_start.call().get().values() == values.values()
    assert len(set(ranks.pid.call().get().values())) == 6


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ({"hosts": 1}, [2, 3]),
        ({"gpus": 1}, [1, 3, 5]),
        ({"hosts": slice(0, 3, 2)}, [0, 1, 4, 5]),
        ({"hosts": slice(1, 3), "gpus": 0}, [2, 4]),
        ({"hosts": 2, "gpus": 1}, [5]),
        ({"hosts": slice(2, 3), "gpus": slice(0, 1)}, [4]),
    ],
)
def test_a_slice_reaches_those_it_names_and_no_other(
    spawn_far: Spawn, selection: dict[str, Any], expected: list[int]
) -> None:
    counters = spawn_far({"gpus": 2}).spawn("counters", Counter)
    part = counters.slice(**selection)
    assert part.add.call().get().values() == [1] * len(expected)
    assert counters.get.call().get().values() == [int(rank in expected) for rank in range(6)]


def test_a_slice_across_hosts_numbers_its_messages_over_the_slice(spawn_far: Spawn) -> None:
    ranks = spawn_far({"gpus": 2}).spawn("ranks", Ranks)
    column = ranks.slice(gpus=1)
    assert column.message_rank.call().get().values() == [{"hosts": host} for host in range(3)]
    assert column.instance_rank.call().get().values() == [
        {"hosts": host, "gpus": 1} for host in range(3)
    ]


def test_hosts_are_split_renamed_and_flattened_as_any_mesh(
    far_hosts: HostMesh, names: list[str]
) -> None:
    hosts = far_hosts
    assert dict(hosts.extent) == {"hosts": 3}
    assert dict(hosts.rename(hosts="nodes").extent) == {"nodes": 3}
    split = hosts.split(hosts=("row", "column"), row=3)
    assert dict(split.extent) == {"row": 3, "column": 1}
    with split.slice(row=slice(1, 3)).spawn_procs({"hosts": 1}) as procs:
        assert dict(procs.extent) == {"row": 2, "column": 1, "hosts": 1}
        expected = [names[1], names[2]]
        assert procs.spawn("home", Home).host.call().get().values() == expected
    with hosts.flatten("h").slice(h=2).spawn_procs() as one:
        assert dict(one.extent) == {}
        assert one.spawn("home", Home).host.call_one().get() == names[2]


def test_procs_over_hosts_are_split_and_sliced_across_the_borders_of_hosts(
    spawn_far: Spawn,
) -> None:
    procs = spawn_far({"gpus": 4})
    ranks = procs.spawn("ranks", Ranks).flatten("r").split(r=("a", "b"), a=2)
    assert dict(ranks.extent) == {"a": 2, "b": 6}
    part = ranks.slice(a=0, b=slice(3, 6))  # ranks 3, 4 and 5: of two hosts
    found = part.instance_rank.call().get().values()
    assert found == [{"hosts": 0, "gpus": 3}, {"hosts": 1, "gpus": 0}, {"hosts": 1, "gpus": 1}]


def test_labels_of_hosts_and_procs_must_differ(far_hosts: HostMesh) -> None:
    with pytest.raises(ValueError, match="hosts"):
        far_hosts.spawn_procs({"hosts": 2})


def test_spawning_on_a_slice_of_procs_across_hosts_renumbers_them(spawn_far: Spawn) -> None:
    procs = spawn_far({"gpus": 2})
    ranks = procs.slice(gpus=1).spawn("ranks", Ranks)
    assert ranks.at_start.call().get().values() == [{"hosts": host} for host in range(3)]


# ways to call


def test_call_one_reaches_each_rank(spawn_far: Spawn) -> None:
    ranks = spawn_far({"gpus": 2}).spawn("ranks", Ranks)
    for host in range(3):
        for gpu in range(2):
            one = ranks.slice(hosts=host, gpus=gpu)
            assert one.instance_rank.call_one().get() == {"hosts": host, "gpus": gpu}
    with pytest.raises(ValueError, match="exactly 1 actor"):
        ranks.pid.call_one()


def test_choose_reaches_all_hosts_in_time(spawn_far: Spawn) -> None:
    counters = spawn_far(1).spawn("counters", Counter)
    for _ in range(60):
        assert counters.add.choose().get() >= 1
    counts = counters.get.call().get().values()
    assert sum(counts) == 60
    assert all(counts)


def test_a_broadcast_reaches_everybody_once_before_the_next_call(spawn_far: Spawn) -> None:
    counters = spawn_far(2).spawn("counters", Counter)
    for _ in range(10):
        counters.add.broadcast(1)
    assert counters.get.call().get().values() == [10] * 6


def test_a_stream_gives_one_value_of_each_rank_and_knows_which(spawn_far: Spawn) -> None:
    ranks = spawn_far(2).spawn("ranks", Ranks)
    futures = list(ranks.instance_rank.stream())
    values = [future.get() for future in futures]
    assert sorted(value["hosts"] * 2 + value["gpus"] for value in values) == list(range(6))
    for future, value in zip(futures, values, strict=True):
        assert future.rank is not None
        assert dict(future.rank) == value


def test_calls_are_awaited_and_gathered(spawn_far: Spawn) -> None:
    echo = spawn_far(1).spawn("echo", Echo)

    async def main() -> list[Any]:
        return await asyncio.gather(
            *(echo.slice(hosts=host).say.call_one(host) for host in range(3))
        )

    assert asyncio.run(main()) == [0, 1, 2]


def test_many_calls_in_flight_are_each_answered(spawn_far: Spawn) -> None:
    echo = spawn_far(2).spawn("echo", Echo)
    futures = [echo.say.call(number) for number in range(200)]
    assert [future.get().values() for future in futures] == [[number] * 6 for number in range(200)]


def test_an_accumulator_folds_over_hosts(spawn_far: Spawn) -> None:
    counters = spawn_far(2).spawn("counters", Counter)
    assert Accumulator(counters.add, 0, lambda a, b: a + b).accumulate(7).get() == 42


def test_send_delivers_results_with_ranks_to_a_port(spawn_far: Spawn) -> None:
    ranks = spawn_far(2).spawn("ranks", Ranks)
    port, receiver = Channel[Any].open_ranked()
    send(ranks.instance_rank, (), {}, port)
    received = dict(receiver.recv().get() for _ in range(6))
    assert {rank: value["hosts"] * 2 + value["gpus"] for rank, value in received.items()} == {
        r: r for r in range(6)
    }


def test_ports_of_the_client_take_values_of_all_hosts_in_the_order_of_each(
    spawn_far: Spawn,
) -> None:
    senders = spawn_far(1).spawn("senders", Sender)
    port, receiver = open_channel()
    for host in range(3):
        senders.slice(hosts=host).send_all.broadcast(
            port, [(host, number) for number in range(200)]
        )
    received = [receiver.recv().get() for _ in range(600)]
    for host in range(3):
        assert [number for sender, number in received if sender == host] == list(range(200))


def test_ports_travel_on_and_are_used_from_threads(spawn_far: Spawn) -> None:
    senders = spawn_far(1).spawn("senders", Sender)
    port, receiver = open_channel()
    senders.slice(hosts=0).keep.call_one(port).get()
    (kept,) = senders.slice(hosts=0).return_kept.call_one().get()
    senders.slice(hosts=2).send_from_thread.call_one(kept, [1, 2, 3]).get()
    assert [receiver.recv().get() for _ in range(3)] == [1, 2, 3]
    senders.slice(hosts=1).send_exception.call_one(port, "through the port").get()
    with pytest.raises(ValueError, match="through the port"):
        receiver.recv().get()


class PortOwner(Actor):
    """Opens a port on its host, and sends it around."""

    def __init__(self) -> None:
        self.port, self.receiver = open_channel()

    @endpoint
    def own(self) -> Port[Any]:
        return self.port

    @endpoint
    def receive(self, count: int) -> list[Any]:
        return [self.receiver.recv().get() for _ in range(count)]


def test_ports_of_one_host_are_sent_to_from_another_and_from_the_client(spawn_far: Spawn) -> None:
    procs = spawn_far(1)
    owner = procs.spawn("owner", PortOwner).slice(hosts=2)
    port = owner.own.call_one().get()
    port.send("from the client")
    assert owner.receive.call_one(1).get() == ["from the client"]
    procs.spawn("sender", Sender).slice(hosts=0).send_all.call_one(port, ["from", "another"]).get()
    assert owner.receive.call_one(2).get() == ["from", "another"]


def test_response_ports_answer_later_and_from_threads(spawn_far: Spawn) -> None:
    desk = spawn_far(1).spawn("desk", Desk)
    asked = desk.ask.call("when?")
    assert desk.answer.call("later").get().values() == [1, 1, 1]
    assert asked.get().values() == ["when?: later"] * 3
    threaded = desk.ask_and_answer_from_thread.call("where?").get()
    assert len(threaded.values()) == 3
    refused = desk.slice(hosts=1).ask.call_one("why?")
    desk.slice(hosts=1).refuse.call_one("no").get()
    with pytest.raises(KeyError, match="no"):
        refused.get()


def test_errors_come_back_with_their_rank_and_the_actors_live_on(spawn_far: Spawn) -> None:
    failing = spawn_far(2).spawn("failing", Failing, (3,))
    with pytest.raises(ActorError, match="rank 3 fails") as caught:
        failing.fail_by_rank.call().get()
    assert isinstance(caught.value, ValueError)
    assert caught.value.rank is not None
    assert dict(caught.value.rank) == {"hosts": 1, "gpus": 1}
    assert "fail_by_rank" in str(caught.value)
    assert failing.alive.call().get().values() == [True] * 6


def test_arguments_are_checked_at_the_call(spawn_far: Spawn) -> None:
    counters = spawn_far(1).spawn("counters", Counter)
    with pytest.raises(TypeError):
        counters.add.call(1, 2, 3)  # type: ignore[call-arg]  # what is tested
    assert counters.get.call().get().values() == [0, 0, 0]


# from actors


@pytest.mark.parametrize("kind", [Caller, AsyncCaller])
def test_actors_of_every_host_call_those_of_all_hosts(spawn_far: Spawn, kind: Any) -> None:
    procs = spawn_far(2)
    echo = procs.spawn("echo", Echo)
    answers = procs.spawn("caller", kind).call.call(echo, "hello").get().values()
    assert answers == [["hello"] * 6] * 6


def test_actors_of_one_host_use_every_adverb_on_those_of_others(spawn_far: Spawn) -> None:
    procs = spawn_far(2)
    echo, caller = procs.spawn("echo", Echo), procs.spawn("caller", Caller).slice(hosts=0, gpus=1)
    assert caller.call.call_one(echo.slice(gpus=0), 1).get() == [1, 1, 1]
    assert caller.call_one.call_one(echo.slice(hosts=2, gpus=1), 2).get() == 2
    assert caller.choose.call_one(echo, 3).get() == 3
    assert caller.stream.call_one(echo, 4).get() == [4] * 6
    recorder = procs.spawn("recorder", Recorder)
    caller.record_at.call_one(recorder, [1, 2, 3]).get()
    assert recorder.recorded.call().get().values() == [[1, 2, 3]] * 6
    assert caller.fail_at.call_one(procs.spawn("failing", Failing)).get().endswith("on purpose\n")


def test_an_async_actor_awaits_many_hosts_at_once(spawn_far: Spawn) -> None:
    procs = spawn_far(1)
    echo = procs.spawn("echo", Echo)
    others = [echo.slice(hosts=host) for host in range(3)]
    gathered = procs.spawn("caller", AsyncCaller).gather.call(others, 5).get().values()
    assert gathered == [[5, 5, 5]] * 3


def test_calls_nest_across_hosts_and_come_back_to_the_host_they_started_on(
    spawn_far: Spawn,
) -> None:
    procs = spawn_far(2)
    one, two = procs.spawn("one", Caller), procs.spawn("two", Caller)
    chain = [
        one.slice(hosts=1, gpus=0), one.slice(hosts=2, gpus=0), two.slice(hosts=0, gpus=0), two.slice(hosts=1, gpus=0),
        one.slice(hosts=0, gpus=1),
    ]  # fmt: skip
    found = two.slice(hosts=2, gpus=1).relay.call_one(chain, "end").get()
    assert found == [5, 2, 4, 0, 2, "end"]


def test_local_and_attached_actors_call_each_other(spawn: Spawn, spawn_far: Spawn) -> None:
    here, there = spawn(2), spawn_far(1)
    near, far = here.spawn("near", Echo), there.spawn("far", Echo)
    assert here.spawn("caller", Caller).call.call(far, 1).get().values() == [[1, 1, 1]] * 2
    assert there.spawn("caller", Caller).call.call(near, 2).get().values() == [[2, 2]] * 3
    assert here.spawn("caller", AsyncCaller).call.call(far, 1).get().values() == [[1, 1, 1]] * 2
    assert there.spawn("caller", AsyncCaller).call.call(near, 2).get().values() == [[2, 2]] * 3


def test_calls_nest_between_the_clients_host_and_others(spawn: Spawn, spawn_far: Spawn) -> None:
    near, far = spawn(2).spawn("near", Caller), spawn_far(1).spawn("far", Caller)
    chain = [far.slice(hosts=1), near.slice(gpus=1), far.slice(hosts=2), far.slice(hosts=0)]
    assert near.slice(gpus=0).relay.call_one(chain, "end").get() == [0, 1, 1, 2, "end"]


def test_actors_in_the_clients_process_are_called_from_other_hosts(spawn_far: Spawn) -> None:
    echo = this_proc().spawn("echo", Echo)
    callers = spawn_far(1).spawn("callers", Caller)
    assert callers.call_one.call(echo, "mine").get().values() == ["mine"] * 3
    mine = this_proc().spawn("caller", Caller)
    far = spawn_far(1).spawn("echo", Echo)
    assert mine.call.call_one(far, 1).get() == [1, 1, 1]
    mine.stop().get()
    echo.stop().get()


# what actors on other hosts can do


class Adder(Actor):
    def __init__(self) -> None:
        self.sum = 0
        self.pid_at_start = os.getpid()

    @endpoint
    def add(self, by: int) -> int:
        self.sum += by
        return self.sum

    @endpoint
    def pid(self) -> int:
        return self.pid_at_start


class UsesController(Actor):
    @endpoint
    def add(self, name: str, by: int) -> tuple[int, int]:
        adder = get_or_spawn_controller(name, Adder).get()
        return adder.pid.call_one().get(), adder.add.call_one(by).get()


@pytest.mark.may_keep("threads", "descriptors")
def test_a_controller_made_on_another_host_lives_in_the_client_once(spawn_far: Spawn) -> None:
    users = spawn_far(2).spawn("users", UsesController)
    answers = users.add.call("counts_over_hosts", 1).get().values()
    assert {pid for pid, _ in answers} == {os.getpid()}
    assert sorted(count for _, count in answers) == [1, 2, 3, 4, 5, 6]
    assert get_or_spawn_controller("counts_over_hosts", Adder).get().add.call_one(1).get() == 7


class Traveller(Actor):
    """Spawns on the host that it runs on."""

    @endpoint
    def here(self) -> tuple[str, list[str], dict[str, int]]:
        with this_host().spawn_procs({"n": 2}) as procs:
            homes = procs.spawn("home", Home).host.call().get().values()
            return own_host(), homes, dict(this_host().extent)

    @endpoint
    def through_host_mesh(self, procs: Any) -> list[str]:
        with procs.host_mesh.spawn_procs() as more:
            # a mesh
            return more.spawn("home", Home).host.call().get().values()  # type: ignore[no-any-return]

    @endpoint
    def on(self, hosts: HostMesh) -> list[str]:
        with hosts.spawn_procs() as procs:
            return procs.spawn("home", Home).host.call().get().values()

    @endpoint
    def on_procs(self, procs: Any) -> list[str]:
        home = procs.spawn("home", Home)
        try:
            # a mesh
            return home.host.call().get().values()  # type: ignore[no-any-return]
        finally:
            home.stop().get()

    @endpoint
    def this_proc_and_rank(self) -> tuple[int, int, dict[str, int], str]:
        echo = this_proc().spawn("echo", Echo)
        pid = echo.pid.call_one().get()
        echo.stop().get()
        return os.getpid(), pid, dict(this_proc().extent), context().actor_instance.name


def test_this_host_of_an_actor_is_the_host_it_runs_on(spawn_far: Spawn, names: list[str]) -> None:
    answers = spawn_far(1).spawn("t", Traveller).here.call().get().values()
    assert answers == [(name, [name, name], {}) for name in names]


def test_procs_that_actors_spawn_end_with_what_spawned_them(spawn_far: Spawn) -> None:
    users = spawn_far(1).spawn("u", HostUser)
    for pid, spawned in users.from_this_host.call().get().values():
        assert pid not in spawned and len(set(spawned)) == 2
    for pid, same in users.from_this_proc.call().get().values():
        assert pid == same


def test_this_proc_of_an_actor_on_another_host_is_its_own(spawn_far: Spawn) -> None:
    for pid, same, extent, name in (
        spawn_far(2).spawn("t", Traveller).this_proc_and_rank.call().get().values()
    ):
        assert pid == same
        assert extent == {}
        assert name == "t"


def test_references_to_hosts_and_procs_are_used_by_actors_elsewhere(
    far_hosts: HostMesh, spawn_far: Spawn, names: list[str]
) -> None:
    procs = spawn_far(1)
    traveller = procs.spawn("t", Traveller)
    assert traveller.slice(hosts=0).on.call_one(far_hosts).get() == names
    assert (
        traveller.slice(hosts=1).on.call_one(far_hosts.slice(hosts=slice(1, 3))).get() == names[1:]
    )
    assert traveller.on.call(far_hosts).get().values() == [names] * 3
    assert traveller.slice(hosts=1).on_procs.call_one(procs).get() == names
    assert traveller.slice(hosts=2).through_host_mesh.call_one(procs).get() == names


def test_actors_on_attached_hosts_spawn_on_the_clients_host(spawn_far: Spawn) -> None:
    here = this_host().spawn_procs()
    name = here.spawn("home", Home).host.call_one().get()
    here.stop().get()
    assert spawn_far(1).spawn("t", Traveller).on.call(this_host()).get().values() == [[name]] * 3


class Keeper(Actor):
    def __init__(self) -> None:
        self.kept: list[Any] = []

    @endpoint
    def keep(self, *values: Any) -> None:
        self.kept.extend(values)

    @endpoint
    def give(self) -> list[Any]:
        return self.kept


def test_references_that_went_from_host_to_host_are_still_the_same_actors(
    far_hosts: HostMesh, spawn_far: Spawn
) -> None:
    procs = spawn_far(2)
    counters, keeper = procs.spawn("c", Counter), procs.spawn("k", Keeper)
    one, two = keeper.slice(hosts=0, gpus=0), keeper.slice(hosts=2, gpus=1)
    one.keep.call_one(counters, counters.slice(gpus=1), procs, far_hosts, {"a": [counters]}).get()
    two.keep.call_one(*one.give.call_one().get()).get()
    all_of_them, column, same_procs, hosts, nested = two.give.call_one().get()
    all_of_them.add.call(1).get()
    column.add.call(1).get()
    nested["a"][0].add.call(1).get()
    assert counters.get.call().get().values() == [2, 3] * 3
    assert same_procs == procs
    assert hosts == far_hosts
    with pytest.raises(RuntimeError, match="reference"):
        hosts.shutdown()
    with pytest.raises(ValueError, match="owne"):
        same_procs.stop()


def test_meshes_that_are_still_starting_are_sent_and_called(spawn_far: Spawn) -> None:
    caller = spawn_far(1).spawn("c", Caller)
    late = spawn_far(1).spawn("late", Echo)  # nothing waits for it here
    assert caller.call.call(late, 3).get().values() == [[3, 3, 3]] * 3


class Parent(Actor):
    def __init__(self) -> None:
        self.children: list[Any] = []

    @endpoint
    def spawn_on(self, procs: Any) -> Any:
        self.children.append(procs.spawn("child", Echo))
        self.children[-1].say.call(0).get()
        return self.children[-1]


def test_children_on_other_hosts_end_with_their_parent(spawn_far: Spawn) -> None:
    procs = spawn_far(1)
    parent = procs.spawn("parent", Parent)
    children = parent.slice(hosts=0).spawn_on.call_one(procs).get()
    assert children.say.call(1).get().values() == [1, 1, 1]
    parent.stop().get()
    with pytest.raises(SupervisionError):
        children.say.call(2).get()


def test_a_stopped_actor_mesh_says_so_to_callers_on_every_host(spawn_far: Spawn) -> None:
    procs = spawn_far(1)
    echo, callers = procs.spawn("echo", Echo), procs.spawn("callers", Caller)
    assert callers.call.call(echo, 1).get().values() == [[1, 1, 1]] * 3
    echo.stop("enough of it").get()
    with pytest.raises(SupervisionError, match="echo"):
        echo.say.call(1).get()
    with pytest.raises(ActorError, match="echo"):
        callers.call.call(echo, 1).get()
    assert callers.slice(hosts=0).relay.call_one([], 1).get() == [1]


def test_a_stopped_proc_mesh_says_so_to_callers_on_every_host(
    far_hosts: HostMesh, spawn_far: Spawn
) -> None:
    stopping = far_hosts.spawn_procs(name="stopping")
    echo, callers = stopping.spawn("echo", Echo), spawn_far(1).spawn("callers", Caller)
    assert callers.call.call(echo, 1).get().values() == [[1, 1, 1]] * 3
    stopping.stop().get()
    with pytest.raises(SupervisionError, match="stopped"):
        echo.say.call(1).get()
    for host in range(3):
        with pytest.raises(ActorError, match="stopped"):
            callers.slice(hosts=host).call.call_one(echo, 1).get()


def test_a_message_knows_its_rank_in_the_mesh_it_was_sent_to_from_elsewhere(
    spawn_far: Spawn,
) -> None:
    class Asks(Actor):
        @endpoint
        def points(self, ranks: Any) -> list[Point]:
            # a mesh
            return ranks.point.call().get().values()  # type: ignore[no-any-return]

        @endpoint
        def my_coordinates_at(self, ranks: Any) -> Point:
            # a mesh
            return ranks.slice(**current_rank()).point.call_one().get()  # type: ignore[no-any-return]

    procs = spawn_far(2)
    ranks = procs.spawn("r", Ranks)
    asks = procs.spawn("a", Asks)
    points = asks.slice(hosts=2, gpus=0).points.call_one(ranks.slice(gpus=1)).get()
    assert [dict(point) for point in points] == [{"hosts": host} for host in range(3)]
    assert [point.rank for point in asks.my_coordinates_at.call(ranks).get().values()] == [0] * 6


class Waits(Actor):
    """Waits for the next in the circle, without a limit."""

    def __init__(self) -> None:
        self.next: Any = None

    @endpoint
    def set_next(self, other: Any) -> None:
        self.next = other

    @endpoint
    def ask(self, steps: int) -> str:
        return "end" if steps == 0 else self.next.ask.call_one(steps - 1).get()


def test_actors_of_several_hosts_that_wait_for_each_other_in_a_circle_are_told(
    spawn_far: Spawn,
) -> None:
    waits = spawn_far(1).spawn("w", Waits)
    ring = [waits.slice(hosts=host, gpus=0) for host in range(3)]
    for host in range(3):
        ring[host].set_next.call_one(ring[(host + 1) % 3]).get()
    assert ring[0].ask.call_one(2).get() == "end"
    with pytest.raises(DeadlockError, match="w.ask"):
        ring[0].ask.call_one(3).get()
    assert ring[1].ask.call_one(2).get() == "end"
