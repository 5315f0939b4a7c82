"""Peers that send rubbish, say nothing, hang up, or never read; each does harm to itself alone."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kernel.contracts.engine import EngineEvent
from kernel.contracts.errors import TimedOut
from kernel.testing.fixtures import KernelFactory
from kernel.topology.system import Kernel
from tests.events import Events
from tests.system.conftest import Certificates, dialler, held_up, listener, route

CORPUS = sorted((Path(__file__).parents[1] / "data" / "fuzz" / "backend").iterdir())
GREETING = bytes.fromhex("ff8100000000000001") + b"\x80"


class Server:
    """A listening kernel, the application behind it, and raw sockets to it."""

    def __init__(self, kernel_factory: KernelFactory, **options: Any) -> None:
        self.events = Events()
        self.kernel: Kernel = kernel_factory(
            listener(**options), route("net", "app"), route("app", "net"), on_event=self.events
        )
        host, _, port = self.kernel.address_of("net").partition(":")
        self.place = (host, int(port))
        self.app = self.kernel.open("app")
        self._sockets: list[socket.socket] = []

    def connect(self) -> socket.socket:
        made = socket.create_connection(self.place, 60)
        self._sockets.append(made)
        return made

    @contextmanager
    def held_up(self) -> Iterator[None]:
        """Meanwhile the listener's thread, of a TLS one, does nothing: it is busy telling of a peer that was refused."""
        begun, over = threading.Event(), threading.Event()

        def hold(event: EngineEvent) -> None:
            if event.what == "refused" and not begun.is_set():
                begun.set()
                over.wait(60)

        self.kernel.events.append(hold)
        self.connect().sendall(b"\x05hello" * 10)
        assert begun.wait(60)
        yield
        over.set()

    def statistics(self) -> dict[str, Any]:
        (engine,) = self.kernel.statistics().engines
        return engine.counters

    def close(self) -> None:
        for made in self._sockets:
            made.close()


@pytest.fixture
def server(kernel_factory: KernelFactory) -> Any:
    made = Server(kernel_factory, protocol={"max_message": 100_000, "handshake": 0.3})
    yield made
    made.close()


def test_rubbish_ends_its_own_connection_and_no_other(server: Server) -> None:
    good = server.connect()
    good.sendall(b"\x05hello")
    assert server.app.receive(60) == b"hello"
    for path in CORPUS:
        bad = server.connect()
        bad.sendall(path.read_bytes())
        bad.close()
    bad = server.connect()
    bad.sendall(os.urandom(100_000))
    bad.close()
    server.events.wait("disconnected", times=len(CORPUS) + 1)
    good.sendall(b"\x05still")
    while server.app.receive(60) != b"still":  # rubbish may well contain messages of the old format
        pass
    assert server.statistics()["connections"] == 1
    assert server.kernel.engine_states()[0].failures == 0


def test_messages_before_the_fault_are_delivered(server: Server) -> None:
    bad = server.connect()
    bad.sendall(b"\x04good" + b"\xff" + (10**9).to_bytes(8, "big"))
    assert server.app.receive(60) == b"good"
    assert "100000" in server.events.wait("disconnected").detail
    assert bad.recv(100) == b""


def test_a_truncated_message_is_an_error_of_its_peer(server: Server) -> None:
    bad = server.connect()
    bad.sendall(b"\x04good\x05hal")
    bad.shutdown(socket.SHUT_WR)
    assert server.app.receive(60) == b"good"
    assert "middle" in server.events.wait("disconnected").detail
    assert server.statistics()["protocol_errors"] == 1


@pytest.mark.slow
def test_a_peer_that_drips_its_greeting_is_given_up(server: Server) -> None:
    with held_up(server.kernel):  # the greeting has begun before anybody waits for it
        bad = server.connect()
        bad.sendall(GREETING[:2])
    assert "no greeting" in server.events.wait("disconnected").detail


def test_a_message_may_come_byte_by_byte(server: Server) -> None:
    slow = server.connect()
    slow.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in b"\x05hello":
        slow.sendall(bytes([byte]))
    assert server.app.receive(60) == b"hello"


@pytest.mark.slow
def test_a_silent_peer_is_served_in_the_old_format(server: Server) -> None:
    silent = server.connect()
    server.events.wait("connected")
    server.app.send(b"hi", timeout=60)
    assert silent.recv(10) == b"\x02hi"


def test_half_a_connection_still_receives(server: Server) -> None:
    """A peer that has closed its writing side is gone for the protocol: there is no half-open state to leak."""
    half = server.connect()
    half.sendall(b"\x04last")
    half.shutdown(socket.SHUT_WR)
    assert server.app.receive(60) == b"last"
    server.events.wait("disconnected")
    assert half.recv(10) == b""


def test_a_reset_connection_is_just_gone(server: Server) -> None:
    peer = server.connect()
    peer.sendall(b"\x01x")
    assert server.app.receive(60) == b"x"
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    server.events.wait("disconnected")
    assert server.statistics()["connections"] == 0


def test_a_peer_whose_heartbeat_stops_is_given_up(kernel_factory: KernelFactory) -> None:
    server = Server(kernel_factory)
    peer = server.connect()
    payload = b"\x81\xa9heartbeat\x32"  # it promises to be heard of every 50 ms
    peer.sendall(b"\xff\x81" + len(payload).to_bytes(7, "big") + payload)
    assert "nothing heard" in server.events.wait("disconnected").detail
    server.close()


@pytest.mark.slow
def test_a_peer_that_asks_without_reading_is_not_read_until_it_reads(kernel_factory: KernelFactory) -> None:
    server = Server(kernel_factory)
    peer = server.connect()
    peer.sendall(GREETING)
    ping = b"\xff\x86" + (1000).to_bytes(7, "big") + bytes(1000)
    pings = ping * 30_000
    peer.settimeout(1)
    sent = 0
    try:
        while sent < len(pings):
            sent += peer.send(memoryview(pings)[sent : sent + 100_000])
    except TimeoutError:
        pass
    assert sent < len(pings), "the answers that wait for us have a bound"
    peer.settimeout(60)
    answers = b""
    while answers.count(b"\xff\x87") < sent // len(ping):
        answers += peer.recv(1 << 20)
    assert server.statistics()["connections"] == 1
    server.close()


def test_connections_beyond_the_limit_are_refused_and_counted(kernel_factory: KernelFactory) -> None:
    server = Server(kernel_factory, max_connections=2)
    for number in range(2):
        server.connect().sendall(b"\x01%d" % number)
        server.app.receive(60)
    assert server.connect().recv(10) == b""
    assert server.statistics()["refused"] == 1
    server.close()


@pytest.mark.slow
@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_storms_of_connections_leave_nothing_behind(server: Server, count: int) -> None:
    def storm(number: int) -> None:
        for at in range(count // 2):
            with socket.create_connection(server.place, 60) as peer:
                if at % 3 == 0:
                    peer.sendall(b"\x01x")
                elif at % 3 == 1:
                    peer.sendall(GREETING)

    threads = [threading.Thread(target=storm, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    got, connections, said = 0, 2 * (count // 2), 2 * len(range(0, count // 2, 3))
    while got < said or server.events.count("disconnected") < connections:
        try:
            got += len(server.app.receive_many(timeout=0.05))
        except TimedOut:
            assert server.statistics()["accepted"] <= connections
    with pytest.raises(TimedOut):
        server.app.receive(0)
    for thread in threads:
        thread.join()
    assert (server.statistics()["accepted"], server.statistics()["connections"]) == (connections, 0)
    assert got == said
    assert sum(row[0] for row in server.kernel.statistics().matrix) <= 1
    late = server.connect()
    late.sendall(b"\x04late")
    assert server.app.receive(60) == b"late"


def test_a_tls_peer_that_never_shakes_hands_is_given_up(
    kernel_factory: KernelFactory, certificates: Certificates
) -> None:
    server = Server(
        kernel_factory,
        address="backend+tls://127.0.0.1:0",
        tls={"certificate": certificates.server},
        connect_timeout=0.1,
    )
    silent = server.connect()
    assert "handshake" in server.events.wait("refused").detail
    assert silent.recv(10) == b""
    plain = server.connect()
    plain.sendall(b"\x05hello" * 10)
    server.events.wait("refused", times=2)
    server.close()


@pytest.mark.parametrize("said", [b"", b"half a greeting"], ids=["silent", "talking"])
def test_a_tls_peer_that_is_gone_before_it_is_looked_at_harms_nobody(
    kernel_factory: KernelFactory, certificates: Certificates, said: bytes
) -> None:
    """As a port scanner leaves: the first thing that the listener sees is that it is gone."""
    server = Server(
        kernel_factory, address="backend+tls://127.0.0.1:0", tls={"certificate": certificates.server}
    )
    with server.held_up():
        gone = server.connect()
        gone.sendall(said)
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        gone.close()
    assert "handshake failed" in server.events.wait("refused", times=2).detail
    assert server.kernel.engine_states()[0].failures == 0
    server.close()


def test_connections_that_shake_hands_count_from_the_moment_they_are_accepted(
    kernel_factory: KernelFactory, certificates: Certificates
) -> None:
    server = Server(
        kernel_factory,
        address="backend+tls://127.0.0.1:0",
        tls={"certificate": certificates.server},
        max_connections=2,
    )
    with server.held_up():
        ends = [server.connect() for _ in range(5)]
    closed = 0
    for end in ends[2:]:
        end.settimeout(60)
        closed += end.recv(10) == b""
    assert closed == 3
    assert server.statistics()["refused"] == 3 + 1, "one more has failed to shake hands"
    server.close()


# ---------------------------------------------------------------------- water marks from end to end


@pytest.mark.slow
def test_a_peer_that_never_reads_blocks_its_sender_alone_and_memory_is_bounded(
    kernel_factory: KernelFactory,
) -> None:
    body = b"x" * 100_000
    kernel = kernel_factory(
        listener(send_buffer=50_000),
        route("app", "net", router="round-robin", marks={"high_bytes": 1_000_000}),
    )
    host, _, port = kernel.address_of("net").partition(":")
    one = socket.create_connection((host, int(port)), 60)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    app = kernel.open("app")
    sent = 0
    try:
        while sent < 10_000:
            app.send(body, timeout=0.5)
            sent += 1
    except TimedOut:
        pass
    depth = sum(pipe.depth_bytes for pipe in kernel.statistics().pipes)
    assert sent * len(body) < 10_000_000, "the sender was let go on"
    assert depth <= 1_000_000 + len(body)
    one.close()


@pytest.mark.slow
def test_a_subscriber_that_never_reads_does_not_hold_up_the_others(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(
        listener(send_buffer=50_000),
        route("app", "net", marks={"high_bytes": 500_000, "when_full": "drop-newest"}),
    )
    host, _, port = kernel.address_of("net").partition(":")
    stuck, reader = (socket.create_connection((host, int(port)), 60) for _ in range(2))
    app = kernel.open("app")
    while len(kernel.statistics().pipes) < 2:  # both are taken for old peers after a moment
        try:
            app.receive(0.02)
        except TimedOut:
            pass
    body = b"x" * 50_000
    frame = b"\xff" + len(body).to_bytes(8, "big") + body
    for _ in range(100):
        app.send(body, timeout=60)
        left = len(frame)
        while left:
            left -= len(reader.recv(left))
    (figures,) = kernel.statistics().routes
    assert figures.dropped > 0
    stuck.close()
    reader.close()


@pytest.mark.slow
def test_back_pressure_reaches_from_the_receiver_to_the_sender(kernel_factory: KernelFactory) -> None:
    marks = {"high": 10, "high_bytes": 200_000}
    buffers = {"send_buffer": 20_000, "receive_buffer": 20_000}
    receiving = kernel_factory(listener(**buffers), route("net", "app", marks=marks))
    sending = kernel_factory(
        dialler(f"backend+tcp://{receiving.address_of('net')}", **buffers), route("app", "net", marks=marks)
    )
    a, b = sending.open("app"), receiving.open("app")
    body = b"x" * 20_000
    sent = 0
    try:
        while sent < 2000:
            a.send(b"%05d" % sent + body, timeout=0.5)
            sent += 1
    except TimedOut:
        pass
    assert sent < 500, "nobody reads, but the sender was let go on"
    got = []
    while len(got) < sent:
        got += [bytes(each[:5]) for each in b.receive_many(timeout=60)]
    assert got == [b"%05d" % number for number in range(sent)]
    a.send(b"00000and on", timeout=60)
    assert b.receive(60) == b"00000and on"
