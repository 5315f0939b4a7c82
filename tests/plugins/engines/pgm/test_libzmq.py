"""libzmq and the kernel on one network: each publishes, each receives, over UDP and IP, with losses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lan import INTERFACE, Lan
from tests.plugins.engines.pgm.exchange import KERNEL, LIBZMQ, PORT, exchange, messages, ready

pytestmark = [pytest.mark.peer("namespaces"), pytest.mark.peer("libzmq with PGM"), pytest.mark.slow]


@pytest.fixture
def network() -> Iterator[Lan]:
    """Four members: the first publishes."""
    with Lan(4) as made:
        yield made


@pytest.mark.parametrize("transport", ["epgm", "pgm"])
@pytest.mark.parametrize("publisher, subscriber", [(KERNEL, LIBZMQ), (LIBZMQ, KERNEL)], ids=["to", "from"])
def test_all_arrives(publisher: str, subscriber: str, transport: str, network: Lan) -> None:
    exchange(network, publisher, [subscriber], transport, 200, 100, 0.0)


@pytest.mark.parametrize("publisher, subscriber", [(KERNEL, LIBZMQ), (LIBZMQ, KERNEL)], ids=["to", "from"])
def test_messages_larger_than_packets_arrive(publisher: str, subscriber: str, network: Lan) -> None:
    exchange(network, publisher, [subscriber], "epgm", 20, 50_000, 0.02)


@pytest.mark.peer("nft")
@pytest.mark.parametrize("transport", ["epgm", "pgm"])
@pytest.mark.parametrize("publisher", [KERNEL, LIBZMQ], ids=["kernel", "libzmq"])
def test_three_receivers_that_lose_a_tenth_miss_nothing(publisher: str, transport: str, network: Lan) -> None:
    """Two kernels and a libzmq, each with losses of its own; the first packets come, as nobody asks for older ones."""
    for member in (1, 2, 3):
        network.lose(member, 10.0, PORT, every=member == 3)
    exchange(network, publisher, [KERNEL, KERNEL, LIBZMQ], transport, 300, 100, 0.002)


@pytest.mark.peer("nft")
def test_kernels_among_themselves_over_ipv6(network: Lan) -> None:
    where = f"backend+epgm://{INTERFACE};[ff15::5555]:{PORT}"
    network.lose(1, 10.0, PORT, every=True)
    listening = ready(network.python(1, KERNEL, "subscribe", where, 300))
    source = ready(network.python(0, KERNEL, "publish", where, 300, 100, 0.001))
    assert source.stdin is not None
    source.stdin.write("go\n")
    source.stdin.flush()
    assert messages(listening, 300) == [f"{number:06d} ".ljust(100, "x") for number in range(300)]
