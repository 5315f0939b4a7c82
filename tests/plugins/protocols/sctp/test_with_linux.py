"""Against the kernel of Linux, in QEMU, over UDP (RFC 6951): both roles, losses, features, and what neither should have sent."""

from __future__ import annotations

import itertools
import random
import select
import socket
import time
from collections.abc import Callable, Iterator

import msgspec
import pytest

from plugins.protocols.sctp import chunks, packets
from plugins.protocols.sctp.association import Association
from plugins.protocols.sctp.chunks import Chunk, Data, Init, Listed, Plain, Sack, Shutdown, Type
from plugins.protocols.sctp.endpoint import Endpoint
from plugins.protocols.sctp.events import Event, Message, What
from plugins.protocols.sctp.options import SctpOptions
from plugins.protocols.sctp.parameters import Cause, Kind, Parameter
from plugins.protocols.sctp.schedule import Terms
from tests.plugins.protocols.sctp.linux import guest
from tests.plugins.protocols.sctp.linux.guest import ADDRESS, DIAL, OURS, PORT

pytestmark = [
    pytest.mark.peer("qemu-sctp"),
    pytest.mark.slow,
    pytest.mark.timeout(600),  # the first test waits for the guest
    pytest.mark.xdist_group("qemu-sctp"),
]

OPTIONS = SctpOptions(
    rto_initial=0.3,
    rto_min=0.15,
    rto_max=2.0,
    init_tries=30,
    association_tries=50,
    path_tries=50,
    interleaving=False,
)
INTERLEAVED = msgspec.structs.replace(OPTIONS, interleaving=True)
_ports = itertools.count(20_000)


class Wire:
    """Our end of the way to the guest: a socket, and an endpoint on it."""

    def __init__(self, sock: socket.socket, port: int) -> None:
        self.sock = sock
        self.place = ("127.0.0.1", port)
        self.begin(0, 0.0)

    def begin(self, seed: int, loss: float, options: SctpOptions = OPTIONS) -> None:
        """Forget what was, and be another endpoint."""
        self.chance = random.Random(seed)
        self.loss = loss
        self.marks = False
        self.port = next(_ports)
        self.endpoint = Endpoint(options, self.port, self.chance.randbytes(32))
        self.association: Association | None = None
        self.messages: list[Message] = []
        self.events: list[Event] = []

    def connect(self) -> Association:
        self.association = self.endpoint.connect([ADDRESS], PORT, time.monotonic())
        self.run_until(lambda: self.told(What.UP))
        return self.association

    def told(self, what: What) -> bool:
        return any(event.what is what for event in self.events)

    def run_until(self, done: Callable[[], bool], most: float = 60.0) -> None:
        end = time.monotonic() + most
        while not done():
            assert time.monotonic() < end, "not done in time"
            self._pump()

    def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        self.run_until(lambda: time.monotonic() >= end)

    def _pump(self) -> None:
        now = time.monotonic()
        self.endpoint.handle_timeout(now)
        for _, packet in self.endpoint.data_to_send(now):
            if self.chance.random() >= self.loss:
                self.sock.sendto(packet, self.place)
        if select.select([self.sock], [], [], 0.005)[0]:
            packet = self.sock.recv(65536)
            if self.chance.random() >= self.loss:
                found = self.endpoint.receive_data(packet, ADDRESS, time.monotonic(), marked=self.marks)
                self.association = found or self.association
        if self.association is not None:
            self.messages += self.association.receive(now)
            self.events += self.association.events
            self.association.events.clear()


@pytest.fixture(scope="module")
def booted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        with guest.guest(tmp_path_factory.mktemp("guest"), sock.getsockname()[1]) as port:
            yield Wire(sock, port)


@pytest.fixture
def wire(booted: Wire) -> Iterator[Wire]:
    booted.begin(1, 0.0)
    yield booted
    booted.loss = 0.0
    for association in booted.endpoint.associations:
        association.abort("the test is over")
    booted.run(0.05)


def exchange(wire: Wire, association: Association, count: int, sizes: tuple[int, ...]) -> None:
    """All comes back, in the order of its stream."""
    before = len(wire.messages)
    sent: dict[int, list[tuple[bytes, int]]] = {}
    for number in range(count):
        data = number.to_bytes(4, "big") + wire.chance.randbytes(wire.chance.choice(sizes))
        sent.setdefault(number % 5, []).append((data, number))
        association.send(number % 5, data, protocol=number)
    wire.run_until(lambda: len(wire.messages) - before == count)
    for stream, expected in sent.items():
        got = [(each.data, each.protocol) for each in wire.messages[before:] if each.stream == stream]
        assert got == expected
    assert association.violations == 0


@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_messages_of_all_sizes_come_back(wire: Wire, loss: float) -> None:
    wire.begin(7, loss)
    association = wire.connect()
    exchange(wire, association, 60, (0, 100, 1000, 20_000))
    association.close(time.monotonic())
    wire.run_until(lambda: wire.told(What.CLOSED))


@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_interleaved_messages_of_one_piece_come_back(wire: Wire, loss: float) -> None:
    wire.begin(7, loss, INTERLEAVED)
    association = wire.connect()
    assert association.sender.interleaved
    exchange(wire, association, 60, (0, 100, 1000))


def test_interleaved_messages_of_more_pieces_are_refused(wire: Wire) -> None:
    """Linux 6.1 gives the second fragment the number 0, which by RFC 8260 (2.1) is the first one's."""
    wire.begin(7, 0.0, msgspec.structs.replace(INTERLEAVED, packet_size=3000))
    wire.connect().send(0, bytes(2000))
    wire.run_until(lambda: wire.told(What.LOST))
    assert "RFC 8260" in wire.events[-1].detail


@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_linux_begins_the_association(wire: Wire, loss: float) -> None:
    asking = wire.connect()
    wire.loss = loss
    listening = Wire(wire.sock, wire.place[1])
    listening.begin(3, loss)
    asking.send(0, str(listening.port).encode(), protocol=DIAL)
    wire.run_until(asking.sender.is_empty)
    listening.run_until(lambda: bool(listening.messages))
    assert listening.messages[0].data == b"hello"
    assert listening.association is not None
    exchange(listening, listening.association, 40, (0, 100, 5000))
    listening.association.close(time.monotonic())
    listening.run_until(lambda: listening.told(What.CLOSED))


@pytest.mark.parametrize("seed", range(5))
def test_what_is_given_up_holds_nothing_up(wire: Wire, seed: int) -> None:
    wire.begin(seed, 0.25)
    association = wire.connect()
    for number in range(100):
        association.send(number % 3, b"%d " % number * 300, terms=Terms(retransmissions=0))
    for stream in range(3):
        association.send(stream, b"the end")
    wire.run_until(lambda: sum(each.data == b"the end" for each in wire.messages) == 3)
    assert association.sender.outstanding.abandoned_count > 0
    for stream in range(3):
        numbers = [
            int(m.data.split()[0]) for m in wire.messages if m.stream == stream and m.data != b"the end"
        ]
        assert numbers == sorted(numbers)


def test_streams_are_reset(wire: Wire) -> None:
    association = wire.connect()
    for _ in range(3):
        exchange(wire, association, 10, (50,))
        association.reset_streams(1, 2)
        wire.run_until(lambda: not association.sender.paused)
    exchange(wire, association, 10, (50,))
    resets = [event for event in wire.events if event.what is What.STREAMS_RESET]
    assert [event.streams for event in resets if event.detail == "ours"] == [(1, 2)] * 3


def test_unordered_messages_come_back_as_such(wire: Wire) -> None:
    wire.connect().send(1, b"ours", terms=Terms(unordered=True))
    wire.run_until(lambda: bool(wire.messages))
    assert wire.messages[0].unordered


def test_linux_slows_down_when_it_is_told_of_a_mark(wire: Wire) -> None:
    wire.begin(1, 0.0, msgspec.structs.replace(OPTIONS, ecn=True))
    association = wire.connect()
    congestion = association.output.ecn
    assert congestion.agreed
    wire.marks = True
    association.send(0, b"x")
    wire.run_until(lambda: bool(wire.messages))
    assert congestion.echo()
    wire.marks = False
    association.send(0, b"y")
    wire.run_until(lambda: not congestion.echo())


def test_larger_packets_are_found_to_pass(wire: Wire) -> None:
    """The guest's interface takes 1,500 bytes; what the probe is larger than that, the host's side of the way drops."""
    wire.begin(1, 0.0, msgspec.structs.replace(OPTIONS, packet_size_max=1452))
    association = wire.connect()
    wire.run_until(lambda: association.paths.all[0].probing.size == 1452)
    exchange(wire, association, 20, (5000,))


# ---------------------------------------------------------------------- what should not be

INIT = Init(is_ack=False, tag=77, window=65536, outbound=3, inbound=3, tsn=1000)
BLUE: dict[str, tuple[int, tuple[Chunk, ...]]] = {
    "INIT": (0, (INIT,)),
    "INIT with a tag in the header": (5, (INIT,)),
    "INIT without streams": (0, (msgspec.structs.replace(INIT, outbound=0),)),
    "INIT without a tag": (0, (msgspec.structs.replace(INIT, tag=0),)),
    "INIT with a small window": (0, (msgspec.structs.replace(INIT, window=1000),)),
    "INIT with an unknown parameter": (
        0,
        (msgspec.structs.replace(INIT, parameters=(Parameter(0xC123, b"?"),)),),
    ),
    "INIT with a host name": (
        0,
        (msgspec.structs.replace(INIT, parameters=(Parameter(Kind.HOST_NAME, b"name\0"),)),),
    ),
    "DATA": (9, (Data(tsn=1, stream=0, number=0, flags=3, data=b"x"),)),
    "SACK": (9, (Sack(cumulative=1, window=5),)),
    "HEARTBEAT": (9, (Listed(Type.HEARTBEAT, (Parameter(1, b"1234"),)),)),
    "ABORT": (9, (Listed(Type.ABORT),)),
    "SHUTDOWN": (9, (Shutdown(1),)),
    "SHUTDOWN ACK": (9, (Plain(Type.SHUTDOWN_ACK),)),
    "SHUTDOWN COMPLETE": (9, (Plain(Type.SHUTDOWN_COMPLETE),)),
    "COOKIE ACK": (9, (Plain(Type.COOKIE_ACK),)),
    "ERROR": (9, (Listed(Type.ERROR, (Parameter(Cause.STALE_COOKIE, b"\0\0\0\1"),)),)),
    "unknown, skip": (9, (Plain(0xBF, b"?"),)),
    "DATA, then ABORT": (9, (Data(tsn=1, stream=0, number=0, flags=3, data=b"x"), Listed(Type.ABORT))),
}

STRICTER: dict[str, list[tuple[int, list[int]]]] = {
    # RFC 9260, 3.3.2: "MUST silently discard"; and a tag in the header is nobody's (8.5.1).
    "INIT without a tag": [(0, [Type.ABORT])],
    "INIT with a tag in the header": [(77, [Type.ABORT])],
}
"""What Linux answers where we do not."""


def asked(wire: Wire, packet: bytes, expected: int) -> list[packets.Packet]:
    """What Linux answers: waited for if it is so many packets, and a moment longer for what nobody expects."""
    wire.sock.sendto(packet, wire.place)
    port = packets.decode(packet).source
    found: list[packets.Packet] = []
    while select.select([wire.sock], [], [], 20.0 if len(found) < expected else 0.25)[0]:
        answer = packets.decode(wire.sock.recv(65536))
        if answer.destination == port:  # not the rest of an association of another test
            found.append(answer)
    return found


def told(answers: list[packets.Packet]) -> list[tuple[int, list[int]]]:
    """Tags and sorts of chunks; an INIT ACK's tag is the peer's."""
    return [(each.tag, [chunks.kind_of(chunk) for chunk in each.chunks]) for each in answers]


@pytest.mark.parametrize("name", BLUE)
def test_what_belongs_to_no_association_is_answered_as_linux_does(wire: Wire, name: str) -> None:
    tag, carried = BLUE[name]
    packet = packets.encode(next(_ports), PORT, tag, [chunks.encode(chunk) for chunk in carried])
    ours = Endpoint(OPTIONS, PORT, bytes(32))
    ours.receive_data(packet, OURS, 0.0)
    answers = [packets.decode(answer) for _, answer in ours.data_to_send(0.0)]
    expected = STRICTER.get(name, told(answers))
    assert told(asked(wire, packet, len(expected))) == expected
    assert not (answers and name in STRICTER)


BAD: dict[str, Callable[[int], Chunk]] = {
    "DATA without data": lambda tsn: Data(tsn=tsn, stream=0, number=0, flags=3, data=b""),
    "DATA for a stream that there is not": lambda tsn: Data(
        tsn=tsn, stream=60_000, number=0, flags=3, data=b"x"
    ),
    "unknown, skip": lambda tsn: Plain(0xBF, b"?"),
    "unknown, skip and report": lambda tsn: Plain(0xFF, b"?"),
    "unknown, stop": lambda tsn: Plain(0x3F, b"?"),
    "unknown, stop and report": lambda tsn: Plain(0x7F, b"?"),
    "HEARTBEAT": lambda tsn: Listed(Type.HEARTBEAT, (Parameter(Kind.HEARTBEAT_INFO, b"1234"),)),
    "COOKIE ACK": lambda tsn: Plain(Type.COOKIE_ACK),
    "SHUTDOWN ACK": lambda tsn: Plain(Type.SHUTDOWN_ACK),
    "SHUTDOWN COMPLETE": lambda tsn: Plain(Type.SHUTDOWN_COMPLETE),
    "ABORT": lambda tsn: Listed(Type.ABORT),
}


def reactions(answers: list[packets.Packet]) -> set[int]:
    """Sorts of chunks, but for what a timer may bring just then."""
    return {kind for _, kinds in told(answers) for kind in kinds} - {Type.SACK}


@pytest.mark.parametrize("name", BAD)
def test_what_should_not_be_in_an_association_is_answered_as_linux_does(wire: Wire, name: str) -> None:
    """To Linux, and to another of ours, each with the right tag and the next TSN."""
    association = wire.connect()
    peer = Endpoint(OPTIONS, PORT, bytes(32))
    twin = Endpoint(OPTIONS, wire.port, b"1" * 32)
    other = twin.connect([ADDRESS], PORT, 0.0)
    for _ in range(3):
        for _, packet in twin.data_to_send(0.0):
            peer.receive_data(packet, OURS, 0.0)
        for _, packet in peer.data_to_send(0.0):
            twin.receive_data(packet, ADDRESS, 0.0)

    def bad(sender: Association) -> bytes:
        chunk = BAD[name](sender.sender.outstanding.next_tsn & 0xFFFF_FFFF)
        return packets.encode(wire.port, PORT, sender.output.peer_tag, [chunks.encode(chunk)])

    peer.receive_data(bad(other), OURS, 0.0)
    answers = [packets.decode(answer) for _, answer in peer.data_to_send(0.0)]
    assert reactions(answers) == reactions(asked(wire, bad(association), len(answers)))
