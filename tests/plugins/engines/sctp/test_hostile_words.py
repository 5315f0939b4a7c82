"""A peer that speaks SCTP and breaks what our engines say over it: its association ends, and nothing else."""

from __future__ import annotations

import math
import os
import select
import socket
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any

import pytest

from kernel.contracts.errors import WouldBlock
from kernel.testing.fixtures import KernelFactory
from plugins.engines.sctp.framing import Greeting, Kind, encode_greeting
from plugins.protocols.sctp.association import Association
from plugins.protocols.sctp.endpoint import Endpoint
from plugins.protocols.sctp.events import What
from plugins.protocols.sctp.options import SctpOptions
from tests.events import Events
from tests.plugins.engines.sctp.plans import dialler, listener
from tests.system.conftest import route

LOOPBACK = bytes((127, 0, 0, 1))
TIMEOUT = 60.0


class Stranger:
    """An association of the protocol's over a socket, without an engine."""

    def __init__(self, place: str, at: int = 0) -> None:
        port, udp_port = map(int, place.rpartition(":")[2].split("/"))
        self._to = ("127.0.0.1", udp_port)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", at))
        self.udp_port = self._socket.getsockname()[1]
        self._endpoint = Endpoint(SctpOptions(), 5001, os.urandom(32))
        self.association: Association = self._endpoint.connect([LOOPBACK], port, monotonic())
        self.events: list[What] = []
        self.until(lambda: What.UP in self.events)

    def until(self, done: Callable[[], bool]) -> None:
        deadline = monotonic() + TIMEOUT
        while not done():
            assert monotonic() < deadline, self.events
            now = monotonic()
            self._endpoint.handle_timeout(now)
            for _, packet in self._endpoint.data_to_send(now):
                self._socket.sendto(packet, self._to)
            if select.select([self._socket], [], [], 0.01)[0]:
                self._endpoint.receive_data(self._socket.recv(65536), LOOPBACK, monotonic())
            self.association.receive(now)
            self.events += [event.what for event in self.association.events]
            self.association.events.clear()

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def strangers() -> Iterator[list[Stranger]]:
    made: list[Stranger] = []
    yield made
    for each in made:
        each.close()


def test_what_a_peer_has_sent_before_it_restarted_waits_for_who_reads_it(
    kernel_factory: KernelFactory, strangers: list[Stranger]
) -> None:
    """It was acknowledged, and there was no room for it: what was before in the association's window, too."""
    events = Events()
    kernel = kernel_factory(
        listener(framing="plain", stream_window=65536),
        route("net", "app", marks={"high": 10, "stall_timeout": math.inf}),
        on_event=events,
    )
    sink = kernel.open("app")
    sent = [b"%06d" % number + bytes(1000) for number in range(250)]
    first = Stranger(kernel.address_of("net"))
    out = [first.association.send(0, body) for body in sent]
    first.until(lambda: all(each.is_acknowledged() for each in out))
    first.close()
    second = Stranger(kernel.address_of("net"), first.udp_port)
    strangers.append(second)
    assert events.wait("disconnected").detail == "the peer has restarted"
    last = second.association.send(0, b"after")
    second.until(last.is_acknowledged)
    got: list[bytes] = []
    while len(got) < len(sent) + 1:
        got += map(bytes, sink.receive_many(timeout=TIMEOUT))
    assert got == [*sent, b"after"]


GREETING = (0, Kind.GREETING, encode_greeting(Greeting(streams=2)))
EIGHT = (1 << 40).to_bytes(8, "big")
BAD = {
    "a greeting that is none": [(0, Kind.GREETING, b"\xc1")],
    "an impossible greeting": [(0, Kind.GREETING, encode_greeting(Greeting(streams=0)))],
    "two greetings": [GREETING, GREETING],
    "messages without a greeting": [(1, Kind.UNIT, bytes(60_000))] * 20,
    "a unit that is none": [GREETING, (1, Kind.UNIT, b"\xff\x85")],
    "half a unit": [GREETING, (1, Kind.COUNTED, b"\x05abc")],
    "a stream that was not agreed on": [GREETING, (7, Kind.UNIT, b"\x01a")],
    "a confirmation of what was not sent": [GREETING, (1, Kind.CONFIRM, EIGHT)],
    "a number that is none": [GREETING, (1, Kind.CONFIRM, b"\0")],
    "a window that shrinks": [GREETING, (1, Kind.WINDOW, bytes(8))],
    "too large a message": [GREETING, *[(1, Kind.FRAGMENT, bytes(32_000))] * 10],
    "more than the window allows": [GREETING, *[(1, Kind.UNIT, b"\xff" + (60_000).to_bytes(8, "big") + bytes(60_000))] * 20],
    "a pattern that is none": [GREETING, (0, Kind.SUBSCRIBE, b"\xff")],
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_who_breaks_the_rules_loses_his_association_and_nobody_else(
    name: str, kernel_factory: KernelFactory, strangers: list[Stranger]
) -> None:
    events = Events()
    receiving = kernel_factory(
        listener(stream_window=64 * 1024, max_message=100_000),
        route("net", "app", marks={"high": 1}),
        on_event=events,
    )
    sending = kernel_factory(dialler(receiving.address_of("net")), route("app", "net"))
    sink = receiving.open("app")
    events.wait("connected")
    stranger = Stranger(receiving.address_of("net"))
    strangers.append(stranger)
    for stream, kind, data in BAD[name]:
        stranger.association.send(stream, data, kind)
    stranger.until(lambda: What.LOST in stranger.events)
    sending.open("app").send(b"still there", timeout=TIMEOUT)
    while bytes(sink.receive(TIMEOUT)) != b"still there":
        pass
    assert receiving.engine_states()[0].failures == 0


def test_unknown_words_are_passed_over(kernel_factory: KernelFactory, strangers: list[Stranger]) -> None:
    """Later versions may have more of them."""
    receiving = kernel_factory(listener(), route("net", "app"))
    stranger = Stranger(receiving.address_of("net"))
    strangers.append(stranger)
    for stream, kind, data in (GREETING, (1, 0x6B6E_00FF, b"?"), (1, Kind.UNIT, b"\x02hi")):
        stranger.association.send(stream, data, kind)
    sink = receiving.open("app")
    got: list[bytes] = []
    stranger.until(lambda: bool(got) or take(sink, got))
    assert got == [b"hi"]


def take(sink: Any, got: list[bytes]) -> bool:
    try:
        got.append(bytes(sink.receive_nowait()))
    except WouldBlock:
        return False
    return True
