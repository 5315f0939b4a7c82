"""A handler of a signal raises anywhere in a call of a blocking host, and nothing is lost, doubled or stuck."""

from __future__ import annotations

import queue
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pytest

from kernel.contracts.errors import ConnectionLost, LocalProtocolError, RemoteProtocolError, WouldBlock
from kernel.contracts.message import Batch, Buffer, Message
from kernel.hosting import blocking_host
from kernel.hosting.address import parse_address
from kernel.hosting.blocking_host import BlockingHost
from kernel.hosting.handshakes import Handshakes
from kernel.hosting.spinning import SpinningRead
from kernel.hosting.tls_options import TlsOptions
from kernel.hosting.waiting import InThread, finish
from kernel.hosting.wire import PlainWire, Wire
from kernel.plugins import PluginRegistry
from tests.interruptions import EVERYWHERE, Interrupted, bodies, everywhere, interrupted
from tests.kernel.hosting.test_blocking_host import Lines, Secure
from tests.system.conftest import Certificates, certificates

__all__ = ["certificates"]

pytestmark = pytest.mark.slow

TIMEOUT = 20.0
MARKER = b"marker"
BIG = b"x" * 20_000_000
"""More than the buffers of a socket hold."""

make_protocol = PluginRegistry.load().protocol_maker()


class Pairs:
    """Two ends of a connection that speak the backend protocol."""

    def __init__(self, ours: TlsOptions | None, theirs: TlsOptions | None) -> None:
        self._tls = ours, theirs

    def _wire(self, connected: socket.socket, *, server_side: bool) -> Wire:
        tls = self._tls[server_side]
        if tls is None:
            return PlainWire(connected)
        shaking = Handshakes(ADDRESS, server_side=server_side, tls=tls, seconds=TIMEOUT, waits=InThread())
        return finish(shaking.start_tls(connected))

    def _host(self, connected: socket.socket, *, server_side: bool) -> BlockingHost:
        side = "server" if server_side else "client"
        protocol = make_protocol("backend", {"heartbeat": 0}, side)
        return BlockingHost(self._wire(connected, server_side=server_side), protocol, side, TIMEOUT)

    @contextmanager
    def open(self) -> Iterator[tuple[BlockingHost, BlockingHost]]:
        """Our end, and that of the peer."""
        ours, theirs = socket.socketpair()
        accepted: queue.SimpleQueue[BlockingHost] = queue.SimpleQueue()
        accepting = in_thread(lambda: accepted.put(self._host(theirs, server_side=True)))
        host = self._host(ours, server_side=False)
        accepting.join(TIMEOUT)
        peer = accepted.get(timeout=TIMEOUT)
        try:
            yield host, peer
        finally:
            # The peer's way of closing waits for ours, which has no thread meanwhile.
            closing = in_thread(peer.close)
            host.close()
            closing.join(TIMEOUT)


ADDRESS = parse_address("backend+tcp://127.0.0.1:1")


@pytest.fixture(params=["plain", "tls"])
def pairs(request: pytest.FixtureRequest, certificates: Certificates) -> Pairs:
    if request.param == "plain":
        return Pairs(None, None)
    return Pairs(
        TlsOptions(authorities=certificates.authorities), TlsOptions(certificate=certificates.server)
    )


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def all_of(host: BlockingHost) -> list[bytes]:
    """Return what comes until the marker."""
    got: list[bytes] = []
    while MARKER not in got:
        got.append(bytes(host.receive(TIMEOUT)))
    return got


def lines_of(peer: socket.socket) -> list[bytes]:
    """Return the lines that come up to the marker."""
    with peer.makefile("rb") as lines:
        return [*iter(lines.readline, MARKER + b"\n"), MARKER + b"\n"]


SENDS: dict[str, Callable[[BlockingHost], Any]] = {
    "send": lambda host: host.send(b"one"),
    "send with a key": lambda host: host.send(b"one", key="key"),
    "send_many": lambda host: host.send_many([b"one"]),
    "send_parts": lambda host: host.send_parts([b"o", b"ne"]),
    "send_message": lambda host: host.send_message(Message(b"one")),
}


@pytest.mark.parametrize("send", SENDS.values(), ids=SENDS)
def test_a_message_is_sent_or_not_and_those_behind_it_arrive(
    pairs: Pairs, send: Callable[[BlockingHost], Any]
) -> None:
    def attempt(at: int) -> str:
        with pairs.open() as (host, peer):
            host.send(b"zero")
            where, _ = interrupted(partial(send, host), at, files=EVERYWHERE)
            host.send(MARKER)
            assert all_of(peer) in ([b"zero", b"one", MARKER], [b"zero", MARKER]), where
        return where

    everywhere(attempt)


@pytest.mark.parametrize("key", [None, "key"])
def test_the_rest_of_a_message_that_a_slow_peer_keeps_waiting_is_written_by_the_next_call(
    pairs: Pairs, key: str | None
) -> None:
    """The signal comes while the peer does not read, and the call ends there."""
    with pairs.open() as (host, peer):
        with raising_after(0.1), pytest.raises(Interrupted):
            host.send(BIG, key=key)
        got: list[bytes] = []
        reading = in_thread(lambda: got.extend(all_of(peer)))
        host.send(MARKER)
        reading.join()
        assert [len(body) for body in got] == [len(BIG), len(MARKER)]
        assert got[0] == BIG


def test_a_call_that_receives_writes_what_an_interrupted_one_has_left(pairs: Pairs) -> None:
    with pairs.open() as (host, peer):
        with raising_after(0.1), pytest.raises(Interrupted):
            host.send(BIG)

        def answer() -> None:
            peer.send(b"%d" % len(peer.receive(TIMEOUT)))

        answering = in_thread(answer)
        assert host.receive(TIMEOUT) == b"%d" % len(BIG)
        answering.join()


@contextmanager
def raising_after(seconds: float) -> Iterator[None]:
    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


RECEIVES: dict[str, Callable[[BlockingHost], Any]] = {
    "receive": lambda host: host.receive(),
    "receive with a timeout": lambda host: host.receive(TIMEOUT),
    "receive_nowait": lambda host: host.receive_nowait(),
    "receive_message": lambda host: host.receive_message(TIMEOUT),
    "receive_many": lambda host: host.receive_many(timeout=TIMEOUT),
    "receive_many, two": lambda host: host.receive_many(2),
    "receive_batch": lambda host: host.receive_batch(),
    "receive_batch, two": lambda host: host.receive_batch(2, TIMEOUT),
}


@pytest.mark.parametrize("waiting", [1, 4])
@pytest.mark.parametrize("receive", RECEIVES.values(), ids=RECEIVES)
def test_what_has_come_is_received_once(
    pairs: Pairs, receive: Callable[[BlockingHost], Any], waiting: int
) -> None:
    sent = [b"1", b"2", b"3", b"4"]

    def attempt(at: int) -> str:
        with pairs.open() as (host, peer):
            peer.send_many(sent[:waiting])
            where, received = interrupted(partial(receive, host), at, files=EVERYWHERE)
            got = bodies(received)
            if host.has_something():
                got += bodies(host.receive_many(timeout=0))
            peer.send_many([*sent[waiting:], MARKER])
            got += all_of(host)
            assert got == [*sent, MARKER], where
        return where

    everywhere(attempt)


def test_what_comes_to_a_thread_that_sleeps_at_once_is_received_once(pairs: Pairs) -> None:
    def attempt(at: int) -> str:
        with pairs.open() as (host, peer):
            if isinstance(host._read_input, SpinningRead):
                # So that the next wait does not look.
                host._read_input.in_vain()
            peer.send(b"1")
            where, received = interrupted(lambda: host.receive(), at, files=EVERYWHERE)
            peer.send(MARKER)
            assert bodies(received) + all_of(host) == [b"1", MARKER], where
        return where

    everywhere(attempt)


@pytest.mark.parametrize("timeout", [None, TIMEOUT])
def test_a_call_that_waits_ends_at_once_and_the_next_one_gets_the_message(
    pairs: Pairs, timeout: float | None
) -> None:
    with pairs.open() as (host, peer):
        for number in range(5):
            with raising_after(0.05), pytest.raises(Interrupted):
                host.receive(timeout)
            peer.send(b"%d" % number)
            assert host.receive(timeout) == b"%d" % number


def test_an_interrupted_close_is_finished_by_the_next_one(pairs: Pairs) -> None:
    def attempt(at: int) -> str:
        with pairs.open() as (host, peer):
            host.send(b"one")
            peer.send(b"unread")
            closing = in_thread(partial(close_with, peer))
            where, _ = interrupted(host.close, at, files=EVERYWHERE)
            host.close()
            closing.join(TIMEOUT)
            assert host._wire.fileno() < 0, where
            with pytest.raises(ConnectionLost):
                host.send(b"two")
        return where

    everywhere(attempt)


def close_with(peer: BlockingHost) -> None:
    """Read until the end."""
    with suppress(ConnectionLost):
        while True:
            peer.receive(TIMEOUT)
    peer.close()


# ---------------------------------------------------------------------- what a protocol may want


class Beating(Lines):
    """Is confirmed, and sends a line whenever its time has come, which is at once for some calls."""

    def __init__(self) -> None:
        super().__init__()
        self.told = 0
        self.beats = 0
        self.left = 0

    def confirm(self, received: int) -> None:
        self.told = received
        self._out.append(b"confirmed %d\n" % received)

    def next_deadline(self) -> float | None:
        return 0.001 if self.left else None

    def handle_timeout(self, now: float) -> None:
        if self.left:
            self.left -= 1
            self.beats += 1
            self._out.append(b"beat\n")


def test_what_is_due_is_done_and_written_and_what_was_received_is_confirmed() -> None:
    def attempt(at: int) -> str:
        ours, theirs = socket.socketpair()
        protocol = Beating()
        with theirs, BlockingHost(PlainWire(ours), protocol, "them", TIMEOUT) as host:
            theirs.settimeout(TIMEOUT)
            theirs.sendall(b"1\n")
            assert host.receive(TIMEOUT) == b"1"
            protocol.left = 3

            def receive() -> None:
                with suppress(WouldBlock):
                    host.receive_nowait()

            where, _ = interrupted(receive, at, files=EVERYWHERE)
            receive()
            host.send(MARKER)
            got = lines_of(theirs)
            assert protocol.told == 1, where
            assert got.count(b"confirmed 1\n") == 1, where
            assert got.count(b"beat\n") == protocol.beats > 0, where
        return where

    everywhere(attempt)


class Suspicious(Lines):
    """Reads single messages by the short cut, and ends when its time comes and it was told of none."""

    def __init__(self) -> None:
        super().__init__()
        self.suspects = False
        self.due = False

    def decode_one(self, data: bytes) -> bytes | None:
        return data[:-1] if data.count(b"\n") == 1 else None

    def receive_data(self, data: Buffer, now: float) -> list[Batch]:
        self.suspects = False
        return super().receive_data(data, now)

    def next_deadline(self) -> float | None:
        return 0.001 if self.due else None

    def handle_timeout(self, now: float) -> None:
        self.due = False
        if self.suspects:
            raise RemoteProtocolError("the peer is silent")


def test_a_peer_that_was_heard_by_the_short_cut_is_not_taken_for_silent() -> None:
    def attempt(at: int) -> str:
        ours, theirs = socket.socketpair()
        protocol = Suspicious()
        with theirs, BlockingHost(PlainWire(ours), protocol, "them", TIMEOUT) as host:
            theirs.sendall(b"1\n")
            assert host.receive() == b"1"
            protocol.due = protocol.suspects = True

            def receive() -> None:
                with suppress(WouldBlock):
                    host.receive_nowait()

            where, _ = interrupted(receive, at, files={blocking_host.__file__, __file__})
            receive()
            theirs.sendall(b"marker\n")
            assert host.receive() == MARKER, where
            assert not protocol.due, where
        return where

    everywhere(attempt)


def test_messages_that_wait_for_credit_are_sent_once_each_as_far_as_they_are_sent() -> None:
    def attempt(at: int) -> str:
        ours, theirs = socket.socketpair()
        theirs.settimeout(TIMEOUT)
        protocol = Lines()
        protocol.credit = 1
        with theirs, BlockingHost(PlainWire(ours), protocol, "them", TIMEOUT) as host:
            theirs.sendall(b".credit 1\nan answer\n.credit 100\n")
            where, _ = interrupted(lambda: host.send_many([b"1", b"2", b"3"]), at, files=EVERYWHERE)
            host.send(MARKER)
            got = lines_of(theirs)
            assert got[:-1] == [b"1\n", b"2\n", b"3\n"][: len(got) - 1], where
            assert host.receive(TIMEOUT) == b"an answer", where
        return where

    everywhere(attempt)


def test_a_fault_of_the_peer_ends_the_conversation_wherever_it_is_noticed() -> None:
    def attempt(at: int) -> str:
        ours, theirs = socket.socketpair()
        theirs.settimeout(TIMEOUT)
        with theirs, BlockingHost(PlainWire(ours), Lines(), "them", TIMEOUT) as host:
            theirs.sendall(b"before\n.fault\nbehind\n")
            faults: list[Exception] = []

            def receive() -> Any:
                try:
                    return host.receive()
                except RemoteProtocolError as error:
                    faults.append(error)
                    return None

            where, _ = interrupted(receive, at, files=EVERYWHERE)
            got: list[bytes] = []
            for _ in range(3):
                try:
                    got.append(bytes(host.receive(TIMEOUT)))
                except (RemoteProtocolError, ConnectionLost) as error:
                    faults.append(error)
            assert got == [b"before"], where
            assert "a fault" in str(faults[-1]), where
            assert theirs.recv(100) == b"fault\n", where
            assert theirs.recv(100) == b"", where
        return where

    everywhere(attempt)


def test_a_refusal_is_told_once_and_the_message_is_not_lost() -> None:
    def attempt(at: int) -> str:
        ours, theirs = socket.socketpair()
        with theirs, BlockingHost(PlainWire(ours), Lines(), "them", TIMEOUT) as host:
            theirs.sendall(b"an answer\n.refuse no such key\n")
            refusals = 0

            def receive() -> None:
                nonlocal refusals
                try:
                    host.receive()
                except LocalProtocolError:
                    refusals += 1

            where, _ = interrupted(receive, at, files=EVERYWHERE)
            theirs.sendall(b"marker\n")
            got: list[bytes] = []
            while MARKER not in got:
                try:
                    got.append(bytes(host.receive(TIMEOUT)))
                except LocalProtocolError:
                    refusals += 1
            assert got == [b"an answer", MARKER], where
            assert refusals <= 1, where
        return where

    everywhere(attempt)


def test_tls_in_the_middle_begins_or_ends_with_a_clear_error(certificates: Certificates) -> None:
    ours = Handshakes(
        ADDRESS,
        server_side=True,
        tls=TlsOptions(certificate=certificates.server),
        seconds=TIMEOUT,
        waits=InThread(),
    )
    theirs = Handshakes(
        ADDRESS,
        server_side=False,
        tls=TlsOptions(authorities=certificates.authorities),
        seconds=TIMEOUT,
        waits=InThread(),
    )

    def attempt(at: int) -> str:
        near, far = socket.socketpair()
        far.settimeout(TIMEOUT)

        def begin_tls() -> None:
            far.sendall(b".tls\n")
            assert far.recv(100) == b"go\n"
            try:
                wire = finish(theirs.start_tls(far))
            except ConnectionLost:
                return
            with wire.connected as encrypted, suppress(OSError):  # a reset, if the host has given up
                encrypted.settimeout(TIMEOUT)
                encrypted.sendall(b"secret\n")
                encrypted.recv(100)

        beginning = in_thread(begin_tls)
        with (
            far,
            BlockingHost(
                PlainWire(near), Secure(), "them", TIMEOUT, lambda plain: finish(ours.start_tls(plain))
            ) as host,
        ):
            where, received = interrupted(lambda: host.receive(), at, files=EVERYWHERE)
            lost = ""
            try:
                received = received or host.receive(TIMEOUT)
            except ConnectionLost as error:
                lost = str(error)
            host.close()
            beginning.join(TIMEOUT)
            assert received == b"secret" or "no TLS: the handshake was interrupted" in lost, (where, lost)
        return where

    everywhere(attempt)
