"""What only the system's own SCTP does, or does in its own way; and with ours at the other end, over UDP (RFC 6951)."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from kernel.contracts.message import Envelope, Message
from kernel.testing.engine_checks import ENGINE_CHECKS, EngineSubject
from kernel.testing.fixtures import KernelFactory
from kernel.topology.system import Kernel
from plugins.engines.sctp.framing import Kind
from plugins.engines.sctp.options import SctpEngineOptions
from plugins.engines.sctp.system.association import READ_SIZE, SystemAssociation
from plugins.engines.sctp.system.layout import IPPROTO_SCTP
from plugins.engines.sctp.system.sockets import SocketFactory
from plugins.engines.sctp.transport import packed
from plugins.protocols.sctp.events import What
from plugins.protocols.sctp.states import State
from tests.events import Events
from tests.plugins.engines.sctp.plans import TIMEOUT, bodies_of, dialler, listener, sent_in_time
from tests.plugins.engines.sctp.test_engine import pair
from tests.plugins.engines.sctp.test_hostile_words import GREETING, Stranger, take
from tests.system.conftest import route

pytestmark = pytest.mark.usefixtures("system")

ROOT = Path(__file__).parents[4]
UDP_PORT = Path("/proc/sys/net/sctp/udp_port")
FEEDS = 20
SIZES = (0, 1, 100, 20_000, 300_000, 100)


def feeds(kernel: Kernel, sink: Kernel) -> None:
    """Send from many sources, each a stream, and see that all arrives, in order on each, and is confirmed."""
    sources = [kernel.open(f"feed{number}") for number in range(FEEDS)]
    app = sink.open("app")
    for number, source in enumerate(sources):
        source.send_many([b"%d:" % number + b"x" * size for size in SIZES], timeout=TIMEOUT)
    got: dict[bytes, list[int]] = {}
    for body in bodies_of(app, FEEDS * len(SIZES)):
        name, _, rest = body.partition(b":")
        got.setdefault(name, []).append(len(rest))
    assert got == {b"%d" % number: list(SIZES) for number in range(FEEDS)}
    for source in sources:
        source.wait_confirmed(TIMEOUT)


def may_meet_ours() -> bool:
    """Whether the system takes SCTP over UDP, and one datagram at a time.

    Datagrams of one call (UDP_SEGMENT) go over loopback as one, and that one makes Linux 6.1 write where it should not.
    """
    shown = subprocess.run(["ip", "-d", "-j", "link", "show", "lo"], capture_output=True, check=True).stdout
    return UDP_PORT.read_text().strip() != "0" and json.loads(shown)[0].get("gso_max_segs") == 1


FEED_ROUTES = [route(f"feed{number}", "net", confirm=True) for number in range(FEEDS)]


@pytest.mark.parametrize("dials,listens", [("system", "udp"), ("udp", "system"), ("system", "system")])
def test_the_system_and_ours_understand_each_other(
    dials: str, listens: str, kernel_factory: KernelFactory
) -> None:
    if dials != listens and not may_meet_ours():
        pytest.skip("net.sctp.udp_port is 0, or lo brings several datagrams as one, which Linux 6.1 dies of")
    events = Events()
    there = kernel_factory(listener(transport=listens, streams=FEEDS), route("net", "app"), on_event=events)
    place = there.address_of("net") + (f"/{UDP_PORT.read_text().strip()}" if dials == "udp" else "")
    with kernel_factory(dialler(place, transport=dials, streams=FEEDS), *FEED_ROUTES) as here:
        feeds(here, there)
    assert events.wait("disconnected").detail == "closed by the peer"


@pytest.mark.parametrize("check", ENGINE_CHECKS, ids=lambda check: check.__name__)
def test_it_keeps_the_contract(check: Callable[[EngineSubject], None], kernel_factory: KernelFactory) -> None:
    listens, dials = partial(listener, transport="system"), partial(dialler, transport="system")
    check(EngineSubject(listen=listens, dial=dials, kernels=kernel_factory))


def test_unordered_and_expiring_messages_arrive_when_there_is_room(kernel_factory: KernelFactory) -> None:
    sending, receiving, _ = pair(
        kernel_factory,
        route("net", "app"),
        here=(route("app", "net"),),
        transport="system",
        stream_buffer=64 * 1024,
    )
    source, sink = sending.open("app"), receiving.open("app")
    count = 300  # more than the buffer of a stream
    for number in range(count):
        envelope = Envelope(expiration=60_000, properties={"unordered": True})
        source.send_message(Message(b"%d " % number + b"x" * 700, envelope), timeout=TIMEOUT)
    got = {int(body.split()[0]) for body in bodies_of(sink, count)}
    assert got == set(range(count))


def test_a_priority_is_told_to_the_system(kernel_factory: KernelFactory) -> None:
    sending, receiving, _ = pair(
        kernel_factory,
        route("net", "app"),
        here=(route("app", "net"),),
        transport="system",
        sctp={"schedule": "priority"},
    )
    source, sink = sending.open("app"), receiving.open("app")
    for priority in (0, 9, 255, 3):
        source.send_message(Message(b"%d" % priority, Envelope(priority=priority)), timeout=TIMEOUT)
    assert bodies_of(sink, 4) == [b"0", b"9", b"255", b"3"]


def test_nobody_there_is_told_at_once(kernel_factory: KernelFactory) -> None:
    events = Events()
    kernel_factory(dialler("127.0.0.1:9", transport="system", connect_timeout=60.0), on_event=events)
    assert events.wait("retrying").detail == "Connection refused"


def test_one_too_many_is_ended_at_once(kernel_factory: KernelFactory) -> None:
    _, serving, _ = pair(kernel_factory, route("net", "app"), transport="system", max_associations=1)
    events = Events()
    place = serving.address_of("net")
    kernel_factory(dialler(place, transport="system"), route("app", "net"), on_event=events)
    assert "aborted by the peer" in events.wait("retrying").detail
    assert serving.statistics().engines[0].counters["refused"] >= 1


def test_plain_messages_that_are_not_taken_hold_up_no_others(kernel_factory: KernelFactory) -> None:
    """One way nothing is taken, so that the socket is not read; the other way goes on, and is confirmed."""
    sending, receiving, _ = pair(
        kernel_factory,
        route("net", "app", confirm=True, marks={"high": 10}),
        route("back", "net", confirm=True),
        here=(route("app", "net", marks={"high": 10}), route("net", "answers", confirm=True)),
        framing="plain",
        transport="system",
        stream_window=64 * 1024,
        stream_buffer=64 * 1024,
        streams=1,
        receive_buffer=64 * 1024,
        send_buffer=64 * 1024,
    )
    source, back, answers = sending.open("app"), receiving.open("back"), sending.open("answers")
    receiving.open("app")
    while sent_in_time(source, bytes(5000), "1"):
        pass
    for number in range(100):
        back.send(b"%d" % number, timeout=TIMEOUT)
    assert bodies_of(answers, 100) == [b"%d" % number for number in range(100)]
    back.wait_confirmed(TIMEOUT)


def test_sockets_are_given_back(kernel_factory: KernelFactory) -> None:
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(3):
        there = kernel_factory(listener(transport="system"), route("net", "app", confirm=True))
        with kernel_factory(
            dialler(there.address_of("net"), transport="system"), route("app", "net", confirm=True)
        ) as here:
            here.open("app").send(b"x", timeout=TIMEOUT)
            assert bodies_of(there.open("app"), 1) == [b"x"]
        there.close()
        there.join()
    left = [fd for fd in set(os.listdir("/proc/self/fd")) - before if is_sctp(int(fd))]
    assert not left


def is_sctp(fd: int) -> bool:
    try:
        with socket.socket(fileno=os.dup(fd)) as found:
            return found.proto == IPPROTO_SCTP
    except OSError:
        return False


def test_a_peer_that_begins_anew_has_a_conversation_of_its_own(kernel_factory: KernelFactory) -> None:
    """From the ports that it had, and knowing nothing of before."""
    if UDP_PORT.read_text().strip() == "0":
        pytest.skip("net.sctp.udp_port is 0")
    events = Events()
    there = kernel_factory(listener(transport="system"), route("net", "app"), on_event=events)
    sink = there.open("app")
    place = f"{there.address_of('net')}/{UDP_PORT.read_text().strip()}"
    at = 0
    for text in (b"one", b"two"):
        stranger = Stranger(place, at)
        at = stranger.udp_port
        for word in (GREETING, (1, Kind.UNIT, b"\3" + text)):
            stranger.association.send(word[0], word[2], word[1])
        got: list[bytes] = []
        stranger.until(partial(take, sink, got))
        assert got == [text]
        stranger.close()
    assert events.wait("disconnected").detail == "the peer has restarted"
    assert events.count("connected") == 2


Start = Callable[[str, str], str]


@pytest.fixture
def keeper() -> Iterator[Start]:
    """A kernel in another process that listens at a place and writes to a file; a new one takes the last one's place."""
    running: list[subprocess.Popen[str]] = []

    def kill() -> None:
        while running:
            program = running.pop()
            program.kill()
            program.communicate()

    def start(place: str, file: str) -> str:
        kill()
        options = json.dumps({"transport": "system"})
        command = [sys.executable, "-m", "tests.plugins.engines.sctp.kernel_program", "keep"]
        program = subprocess.Popen(
            [*command, f"backend+sctp://{place}", options, file], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        running.append(program)
        assert program.stdout is not None
        for line in program.stdout:
            if line.startswith("at "):
                return line.split()[1]
        raise AssertionError("it does not listen")

    yield start
    kill()


def test_nothing_is_lost_when_the_receiver_is_killed(
    kernel_factory: KernelFactory, keeper: Start, tmp_path: Path
) -> None:
    file = tmp_path / "kept"
    place = keeper("127.0.0.1:0", str(file))
    events = Events()
    sending = kernel_factory(
        dialler(place, transport="system"), route("app", "net", confirm=True), on_event=events
    )
    source, total = sending.open("app"), 2000
    for number in range(total):
        source.send(b"%d" % number, timeout=TIMEOUT)
        if number == total // 2:
            events.wait("connected")
            keeper(place, str(file))
    source.wait_confirmed(TIMEOUT)
    assert {int(line) for line in file.read_bytes().split()} == set(range(total))
    assert events.count("disconnected") >= 1


def test_what_a_peer_has_sent_that_left_before_it_was_accepted_is_received() -> None:
    options = SctpEngineOptions(address="plain+sctp://127.0.0.1:0", mode="listen", transport="system")
    with SocketFactory(options, ["127.0.0.1"], port=0, udp_port=None).open() as listening:
        listening.setblocking(True)
        listening.listen()
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_SCTP) as peer:
            peer.connect(listening.getsockname())
            for number in range(3):
                peer.send(b"%d" % number)
            # The shutdown begins when all is acknowledged.  It is over when the socket has nothing more to read, or is no
            # end of an association any more.
            peer.shutdown(socket.SHUT_WR)
            with contextlib.suppress(OSError):
                assert peer.recv(1) == b""
        made, (host, port) = listening.accept()
    with made:
        association = SystemAssociation(made, [packed(host)], port, options, tracks=True)
        association.read(32, memoryview(bytearray(READ_SIZE)))
        assert [message.data for message in association.receive(0.0)] == [b"0", b"1", b"2"]
        assert next(event.what for event in association.events) is What.UP
        assert association.state is State.CLOSED
