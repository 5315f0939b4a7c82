"""libzmq and the kernel on one network: each publishes, each receives, over UDP and IP, with losses."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.lan import INTERFACE, Lan

pytestmark = [pytest.mark.peer("namespaces"), pytest.mark.peer("libzmq with PGM"), pytest.mark.slow]

GROUP, PORT = "239.192.1.1", 5555
LIBZMQ = "tests.plugins.engines.pgm.libzmq_peer"
KERNEL = "tests.plugins.engines.pgm.kernel_peer"


@pytest.fixture
def network() -> Iterator[Lan]:
    """Four members: the first publishes."""
    with Lan(4) as made:
        yield made


def _where(peer: str, transport: str, member: int) -> str:
    """An address, as each of them writes it."""
    if peer == LIBZMQ:  # by address: OpenPGM asks a name server for names
        return f"{transport}://{Lan.address(member)};{GROUP}:{PORT}"
    return f"zmtp1+{transport}://{INTERFACE};{GROUP}:{PORT}"


def _ready(program: subprocess.Popen[str]) -> subprocess.Popen[str]:
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    return program


def _messages(program: subprocess.Popen[str], count: int) -> list[str]:
    assert program.stdout is not None
    return [program.stdout.readline().rstrip("\n") for _ in range(count)]


def _exchange(
    network: Lan,
    publisher: str,
    subscribers: list[str],
    transport: str,
    count: int,
    size: int,
    between: float,
) -> None:
    listening = [
        _ready(network.python(at, peer, "subscribe", _where(peer, transport, at), count))
        for at, peer in enumerate(subscribers, 1)
    ]
    source = _ready(
        network.python(0, publisher, "publish", _where(publisher, transport, 0), count, size, between)
    )
    assert source.stdin is not None
    source.stdin.write("go\n")
    source.stdin.flush()
    sent = [f"{number:06d} ".ljust(size, "x") for number in range(count)]
    for program in listening:
        assert _messages(program, count) == sent
    source.stdin.write("enough\n")
    source.stdin.close()
    assert source.wait(20) == 0


@pytest.mark.parametrize("transport", ["epgm", "pgm"])
@pytest.mark.parametrize("publisher, subscriber", [(KERNEL, LIBZMQ), (LIBZMQ, KERNEL)], ids=["to", "from"])
def test_all_arrives(publisher: str, subscriber: str, transport: str, network: Lan) -> None:
    _exchange(network, publisher, [subscriber], transport, 200, 100, 0.0)


@pytest.mark.parametrize("publisher, subscriber", [(KERNEL, LIBZMQ), (LIBZMQ, KERNEL)], ids=["to", "from"])
def test_messages_larger_than_packets_arrive(publisher: str, subscriber: str, network: Lan) -> None:
    _exchange(network, publisher, [subscriber], "epgm", 20, 50_000, 0.02)


@pytest.mark.peer("nft")
@pytest.mark.parametrize("transport", ["epgm", "pgm"])
@pytest.mark.parametrize("publisher", [KERNEL, LIBZMQ], ids=["kernel", "libzmq"])
def test_three_receivers_that_lose_a_tenth_miss_nothing(publisher: str, transport: str, network: Lan) -> None:
    """Two kernels and a libzmq, each with losses of its own; the first packets come, as nobody asks for older ones."""
    for member in (1, 2, 3):
        network.lose(member, 10.0, PORT, every=member == 3)
    _exchange(network, publisher, [KERNEL, KERNEL, LIBZMQ], transport, 300, 100, 0.002)


@pytest.mark.peer("nft")
def test_kernels_among_themselves_over_ipv6(network: Lan) -> None:
    where = f"backend+epgm://{INTERFACE};[ff15::5555]:{PORT}"
    network.lose(1, 10.0, PORT, every=True)
    listening = _ready(network.python(1, KERNEL, "subscribe", where, 300))
    source = _ready(network.python(0, KERNEL, "publish", where, 300, 100, 0.001))
    assert source.stdin is not None
    source.stdin.write("go\n")
    source.stdin.flush()
    assert _messages(listening, 300) == [f"{number:06d} ".ljust(100, "x") for number in range(300)]
