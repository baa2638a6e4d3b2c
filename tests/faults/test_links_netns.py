"""Links between network namespaces: cables are pulled, and networks fall silent."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from helpers.link_ends import End, numbered
from helpers.netns import NetHost, Network, why_no_netem, why_not
from helpers.waiting import wait_until
from monarch._core.net.trust import trust_for
from monarch.config import configured
from monarch.trust import make_secret

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
SECRET = trust_for(secret=make_secret())


@pytest.fixture
def network() -> Iterator[Network]:
    with Network(2) as network:
        yield network


def end_on(host: NetHost, listen: bool = False) -> End:
    with host.entered():
        return End(f"tcp://{host.address}:0" if listen else None, SECRET)


@pytest.fixture
def patience(request: pytest.FixtureRequest) -> str:
    """The `channel_reconnect_timeout` of both ends."""
    return getattr(request, "param", "2s")


@pytest.fixture
def ends(network: Network, patience: str) -> Iterator[tuple[End, End]]:
    """A client on the first host, a worker on the second, and a link between them."""
    with configured(channel_reconnect_timeout=patience), ExitStack() as stack:
        client = stack.enter_context(end_on(network.hosts[0]))
        worker = stack.enter_context(end_on(network.hosts[1], listen=True))
        client.links.send(worker.name, numbered(0))
        worker.wait_frames(1)
        worker.links.send(client.name, numbered(0))
        client.wait_frames(1)
        yield client, worker


def interrupt(host: NetHost, how: str) -> None:
    if how == "unplugged":
        host.unplug()
    else:
        host.silence()


# The kernel takes up to a second to notice that a cable is back.
@pytest.mark.parametrize("patience", ["8s"], indirect=True)
@pytest.mark.parametrize("how", ["unplugged", "silent"])
@pytest.mark.parametrize("whose", [0, 1])
def test_a_short_interruption_of_either_network_goes_unnoticed(
    network: Network, ends: tuple[End, End], how: str, whose: int
) -> None:
    client, worker = ends
    for turn in range(2):
        interrupt(network.hosts[whose], how)
        for number in range(1, 50):
            client.links.send(worker.name, numbered(50 * turn + number))
            worker.links.send(client.name, numbered(50 * turn + number))
        time.sleep(0.4)  # the interruption itself
        network.hosts[whose].plug_in()
        worker.wait_frames(49 * (turn + 1) + 1)
        client.wait_frames(49 * (turn + 1) + 1)
    expected = [0, *range(1, 50), *range(51, 100)]
    assert worker.numbers() == client.numbers() == expected
    assert client.lost == worker.lost == []


# Half of it passes until the stream is given up; the other half must do for a new one, also on a
# machine that is busy.
@pytest.mark.parametrize("patience", ["8s"], indirect=True)
@pytest.mark.parametrize("how", ["unplugged", "silent"])
def test_an_interruption_that_breaks_the_stream_is_overcome_by_another(
    network: Network, ends: tuple[End, End], how: str
) -> None:
    client, worker = ends
    stream = next(iter(client.links._streams))
    interrupt(network.hosts[1], how)
    client.links.send(worker.name, numbered(1))
    worker.links.send(client.name, numbered(1))
    wait_until(lambda: stream not in client.links._streams, what="the broken stream to be given up")
    network.hosts[1].plug_in()
    worker.wait_frames(2)
    client.wait_frames(2)
    assert client.numbers() == worker.numbers() == [0, 1]
    assert client.lost == worker.lost == []


@pytest.mark.parametrize("how", ["unplugged", "silent"])
def test_a_long_interruption_is_known_to_both_sides_within_the_bound(
    network: Network, ends: tuple[End, End], how: str
) -> None:
    client, worker = ends
    before = time.monotonic()
    interrupt(network.hosts[0], how)
    client.wait(lambda: client.lost)
    worker.wait(lambda: worker.lost)
    assert time.monotonic() - before > 1
    network.hosts[0].plug_in()
    client.links.send(worker.name, numbered(1))
    worker.wait_frames(2)
    assert worker.ups == [client.name] * 2


@pytest.mark.skipif(why_no_netem() is not None, reason=str(why_no_netem()))
def test_a_network_that_is_slow_loses_and_reorders_costs_nothing_but_time(
    network: Network, ends: tuple[End, End]
) -> None:
    client, worker = ends
    for host in network.hosts:
        host.netem("delay", "20ms", "10ms", "loss", "3%", "reorder", "5%", "duplicate", "1%")
    for number in range(1, 500):
        client.links.send(worker.name, numbered(number, b"x" * 2000))
        worker.links.send(client.name, numbered(number))
    worker.wait_frames(500)
    client.wait_frames(500)
    assert worker.numbers() == client.numbers() == list(range(500))
    assert client.lost == worker.lost == []
