"""Datagrams, many a call: nothing is joined, split, doubled or put out of order by that."""

from __future__ import annotations

import errno
import os
import random
import select
import socket
from collections.abc import Iterator
from ipaddress import ip_address

import pytest

from kernel.hosting import datagram_wire
from kernel.hosting import interfaces as interfaces_module
from kernel.hosting.datagram_wire import DatagramWire, want_buffer
from kernel.hosting.interfaces import find_interface, interfaces
from tests.systems import LINUX, linux_only

LOOPBACK = find_interface("127.0.0.1", ip_address("239.192.1.1")).name


def _bound() -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    # macOS sends no datagram that is larger.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    return sock


@pytest.fixture
def pair() -> Iterator[tuple[DatagramWire, DatagramWire, tuple[str, int]]]:
    """A wire that sends, one that receives, and where that is."""
    there = _bound()
    sending, receiving = DatagramWire(_bound()), DatagramWire(there)
    yield sending, receiving, there.getsockname()
    sending.close()
    receiving.close()


def _received(wire: DatagramWire, count: int) -> list[bytes]:
    """Receive so many; a system that is busy passes them on when it has the time."""
    got: list[bytes] = []
    while len(got) < count:
        assert select.select([wire], [], [], 60)[0], f"{len(got)} of {count} came"
        got += [
            datagram for datagrams, at in wire.receive(100) for datagram in datagrams if at[0] == "127.0.0.1"
        ]
    return got


SIZES = {
    "equal": [1000] * 50,
    "the last shorter": [1000] * 20 + [10],
    "growing": list(range(1, 60)),
    "mixed": [random.Random(4).choice((8, 8, 8, 700, 1400)) for _ in range(80)],
    "large": [60_000, 60_000, 9000],
    "more than fit a call": [1400] * 100,
}


@pytest.mark.parametrize("batches", [True, False], ids=["in batches", "one by one"])
@pytest.mark.parametrize("name", SIZES)
def test_what_is_sent_is_what_arrives(
    name: str, batches: bool, pair: tuple[DatagramWire, DatagramWire, tuple[str, int]]
) -> None:
    sending, receiving, there = pair
    sending.segments = sending.segments and batches
    datagrams = [bytes([number % 256]) * size for number, size in enumerate(SIZES[name])]
    assert sending.send(datagrams, there)
    assert _received(receiving, len(datagrams)) == datagrams
    assert sending.dropped == 0


def test_nothing_to_receive_is_nothing(pair: tuple[DatagramWire, DatagramWire, tuple[str, int]]) -> None:
    assert pair[1].receive(5) == []


def test_a_datagram_that_is_too_large_is_counted_and_the_others_go(
    pair: tuple[DatagramWire, DatagramWire, tuple[str, int]],
) -> None:
    sending, receiving, there = pair
    assert sending.send([b"before", b"x" * 70_000, b"after"], there)
    assert _received(receiving, 2) == [b"before", b"after"]
    assert sending.dropped == 1
    assert sending.refusal == "Message too long (70000 bytes)"


class _Stubborn:
    """A socket that takes nothing for a while."""

    type, family = socket.SOCK_DGRAM, socket.AF_INET

    def __init__(self) -> None:
        self.refusals = 2
        self.taken: list[bytes] = []

    def setblocking(self, _: bool) -> None: ...

    def setsockopt(self, *_: object) -> None:
        raise OSError

    def getsockopt(self, *_: object) -> int:
        return 0

    def sendto(self, datagram: bytes, _: object) -> None:
        if self.refusals:
            self.refusals -= 1
            raise BlockingIOError(11, "full")
        self.taken.append(datagram)


def test_what_does_not_go_now_goes_later_in_order() -> None:
    stubborn = _Stubborn()
    wire = DatagramWire(stubborn)  # type: ignore[arg-type]
    wire.segments = False
    assert not wire.send([b"1", b"2"], ())
    assert not wire.send([b"3"], ())
    assert wire.flush()
    assert stubborn.taken == [b"1", b"2", b"3"]


def test_a_buffer_that_is_smaller_than_wished_for_names_the_sysctl() -> None:
    limits = ("net.core.rmem_max", "net.core.wmem_max") if LINUX else ("kern.ipc.maxsockbuf",) * 2
    with _bound() as sock:
        for option, limit in zip((socket.SO_RCVBUF, socket.SO_SNDBUF), limits, strict=True):
            assert want_buffer(sock, option, 4096) is None
            assert f"{limit}=2147483647" in str(want_buffer(sock, option, (1 << 31) - 1))


class _WithoutForce:
    """A socket of a system that refuses a buffer above its limit (BSD, macOS), where Linux gives less."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.size = 0

    def setsockopt(self, level: int, option: int, size: int) -> None:
        assert (level, option) == (socket.SOL_SOCKET, socket.SO_RCVBUF)
        if size > self._limit:
            raise OSError(errno.ENOBUFS, "No buffer space available")
        self.size = size

    def getsockopt(self, level: int, option: int) -> int:
        return self.size


def test_a_system_that_refuses_a_large_buffer_gives_the_half_that_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(datagram_wire, "_LINUX", False)
    sock = _WithoutForce(8 << 20)
    assert want_buffer(sock, socket.SO_RCVBUF, 4 << 20) is None  # type: ignore[arg-type]
    assert sock.size == 4 << 20
    warning = want_buffer(sock, socket.SO_RCVBUF, 20_000_000)  # type: ignore[arg-type]
    assert warning == (
        "the system gave a socket buffer of 5000000 bytes, not 20000000: bursts may be lost; "
        "sysctl -w kern.ipc.maxsockbuf=20000000"
    )
    with pytest.raises(OSError, match="No buffer space"):
        want_buffer(_WithoutForce(0), socket.SO_RCVBUF, 4096)  # type: ignore[arg-type]


def test_a_system_that_does_not_know_segments_gets_datagrams_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may ignore UDP_SEGMENT instead of refusing it, and send all of them as one."""
    monkeypatch.setattr(datagram_wire, "UDP_SEGMENT", 99)
    with _bound() as sock:
        assert not DatagramWire(sock).segments


# ---------------------------------------------------------------------- interfaces


@pytest.mark.parametrize("wanted", [LOOPBACK, "127.0.0.1", "127.0.0.0/8"])
def test_an_interface_is_found_by_name_address_or_network(wanted: str) -> None:
    found = find_interface(wanted, ip_address("239.192.1.1"))
    assert (found.name, str(found.address)) == ("lo", "127.0.0.1")
    assert found.index == socket.if_nametoindex("lo")
    assert found.mtu >= 1500


def test_a_wrong_interface_is_told_with_those_that_there_are() -> None:
    with pytest.raises(OSError, match=r"'nowhere' with an IPv4 address; there are: .*lo \(127.0.0.1\)"):
        find_interface("nowhere", ip_address("239.192.1.1"))


def test_a_group_to_which_no_interface_leads_is_named_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def connect(*_: object) -> None:
        raise OSError(errno.ENETUNREACH, os.strerror(errno.ENETUNREACH))

    monkeypatch.setattr(socket.socket, "connect", connect)
    with pytest.raises(
        OSError, match=r"no interface leads to 239\.192\.1\.1: .*; name one in the address, as in eth0;"
    ):
        find_interface("", ip_address("239.192.1.1"))


def test_all_interfaces_with_an_address_are_there() -> None:
    assert ip_address("127.0.0.1") in {interface.address for interface in interfaces()}


@linux_only
def test_other_systems_find_the_same_interfaces(monkeypatch: pytest.MonkeyPatch) -> None:
    found = interfaces()
    monkeypatch.setattr(interfaces_module, "_linux_addresses", lambda _: interfaces_module._addresses())
    assert sorted(interfaces(), key=repr) == sorted(found, key=repr)


@linux_only
def test_what_nobody_listened_for_is_known_and_holds_up_nothing(
    pair: tuple[DatagramWire, DatagramWire, tuple[str, int]],
) -> None:
    sending, receiving, there = pair
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as closed:
        closed.bind(("127.0.0.1", 0))
        nowhere = closed.getsockname()
    sending.hear_of_refusals()
    for _ in range(3):
        assert sending.send([b"to nobody"], nowhere)
        assert sending.send([b"to somebody"] * 3, there)
    news = select.poll()
    news.register(sending, 0)  # errors alone
    assert news.poll(60_000)
    assert sending.receive(5) == []
    assert sending.refused
    assert set(sending.take_refused()) == {(b"to nobody", nowhere)}
    assert not sending.refused
    assert _received(receiving, 9) == [b"to somebody"] * 9
    assert sending.dropped == 0


class Unlucky:
    """A socket of a system that has heard of an earlier datagram what ``number`` says."""

    family, type = socket.AF_INET, socket.SOCK_DGRAM

    def __init__(self, number: int) -> None:
        self._errors = [OSError(number, "news")]

    def setblocking(self, on: bool) -> None:
        assert not on

    def setsockopt(self, *option: int) -> None:
        raise OSError(errno.ENOPROTOOPT, "not here")

    getsockopt = setsockopt

    def recvfrom(self, size: int) -> tuple[bytes, tuple[str, int]]:
        if self._errors:
            raise self._errors.pop()
        return b"still", ("127.0.0.1", 1)

    def sendto(self, datagram: bytes, place: tuple[str, int]) -> None:
        if self._errors:
            raise self._errors.pop()


@pytest.mark.parametrize("number", [errno.EHOSTUNREACH, errno.EPROTO, errno.EMSGSIZE])
def test_news_of_an_earlier_datagram_do_not_end_receiving(number: int) -> None:
    wire = DatagramWire(Unlucky(number))
    assert wire.receive(2) == [([b"still"], ("127.0.0.1", 1))]
    assert (
        wire.refused
    )  # what the system knows of it is to be fetched: until then the socket is never at rest
    wire = DatagramWire(Unlucky(number))
    assert wire.send([b"lost"], ("127.0.0.1", 1))
    assert wire.refused
    assert wire.dropped == 1


@linux_only
@pytest.mark.parametrize("number", [errno.EHOSTUNREACH, errno.ENETUNREACH])
def test_news_of_an_earlier_datagram_do_not_end_sending_in_batches(number: int) -> None:
    sent: list[list[bytes]] = []
    news = [OSError(number, "news")]

    class Told(_Stubborn):
        def sendmsg(self, datagrams: list[bytes], *_: object) -> int:
            if news:
                raise news.pop()
            sent.append(datagrams)
            return len(datagrams)

        def sendto(self, datagram: bytes, _: object) -> None:
            sent.append([datagram])

    wire = DatagramWire(Told())  # type: ignore[arg-type]
    assert wire.segments
    assert wire.send([b"1", b"2", b"3"], ("127.0.0.1", 9))
    assert sent == [[b"1"], [b"2", b"3"]]
    assert wire.segments
    assert (wire.dropped, wire.refused) == (0, True)


def test_a_socket_that_is_broken_is_told() -> None:
    with pytest.raises(OSError, match="news"):
        DatagramWire(Unlucky(errno.EBADF)).receive(1)
