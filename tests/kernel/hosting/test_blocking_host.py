"""The blocking host keeps the contract of protocols: facts, TLS in the middle, credit, refusals, logins, a close in order."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pytest
import trio

from kernel.contracts.errors import ConnectionLost, LocalProtocolError, RemoteProtocolError, TimedOut
from kernel.contracts.message import Batch, Buffer, batch_of
from kernel.contracts.protocol import ConnectionFacts, Login, Refusal
from kernel.hosting import blocking_host
from kernel.hosting.address import parse_address
from kernel.hosting.blocking_host import BlockingHost
from kernel.hosting.handshakes import Handshakes
from kernel.hosting.tls_options import TlsOptions
from kernel.hosting.waiting import InThread, finish
from kernel.hosting.wire import PlainWire
from tests.line_protocol import LineProtocol
from tests.system.conftest import Certificates, certificates

__all__ = ["certificates"]


class Lines(LineProtocol):
    """Lines are messages.  Lines that begin with a point are for the protocol itself."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: list[Refusal] = []
        self.credit: int | None = None
        self.given: list[int] = []
        """The size of each batch that was given to ``send_batches``."""
        self.ready = True
        self.facts: list[ConnectionFacts] = []
        self.subscribed_at: list[float] = []

    def on_connection(self, facts: ConnectionFacts) -> None:
        self.facts.append(facts)

    def may_send(self) -> int | None:
        return self.credit

    def subscribed(self, now: float) -> None:
        self.subscribed_at.append(now)

    def receive_data(self, data: Buffer, now: float) -> list[Batch]:
        messages = []
        for line in self.lines(data):
            verb, _, rest = line.partition(b" ")
            if verb == b".credit":
                self.credit = (self.credit or 0) + int(rest)
            elif verb == b".refuse":
                self.refused.append(Refusal(1, rest.decode()))
            elif verb == b".subscribe":
                self.subscriptions.append(("subscribe", rest.decode()))
            elif verb == b".ready":
                self.ready = True
            elif verb == b".fault":
                self._out.append(b"fault\n")
                raise RemoteProtocolError("a fault", [batch_of(messages)] if messages else ())
            else:
                messages.append(line)
        return [batch_of(messages)] if messages else []

    def send_batches(self, batches: Sequence[Batch], now: float) -> None:
        assert self.ready_to_send()
        count = sum(map(len, batches))
        self.given.append(count)
        if self.credit is not None:
            assert count <= self.credit
            self.credit -= count
        super().send_batches(batches, now)

    def ready_to_send(self) -> bool:
        return self.ready and not self._closed

    def close(self, reason: str, now: float) -> None:
        super().close(reason, now)
        self._out.append(b"bye\n")


class Secure(Lines):
    """Begins TLS when the peer says so."""

    wants = False

    def wants_tls(self) -> bool:
        return self.wants

    def tls_started(self, facts: ConnectionFacts, now: float) -> None:
        self.facts.append(facts)
        self.wants = False

    def receive_data(self, data: Buffer, now: float) -> list[Batch]:
        if bytes(data) == b".tls\n":
            self.wants = True
            self._out.append(b"go\n")
            return []
        return super().receive_data(data, now)


class Guarded(Lines):
    """Wants to know whether the peer may come in."""

    def __init__(self) -> None:
        super().__init__()
        self.ready = False
        self._login: Login | None = Login(mechanism="PLAIN", user="somebody")

    def login(self) -> Login | None:
        login, self._login = self._login, None
        return login

    def decide(self, reason: str | None, now: float) -> None:
        self._out.append(f"refused: {reason}\n".encode())
        self._closed = True


class Ends(NamedTuple):
    """Both ends of a connection: ours, and that of the peer."""

    ours: socket.socket
    theirs: socket.socket


@pytest.fixture
def ends() -> Iterator[Ends]:
    ours, theirs = socket.socketpair()
    theirs.settimeout(60)
    with ours, theirs:
        yield Ends(ours, theirs)


@pytest.fixture
def peer(ends: Ends) -> socket.socket:
    return ends.theirs


@pytest.fixture
def host_of(ends: Ends) -> HostOf:
    return lambda protocol: BlockingHost(PlainWire(ends.ours), protocol, "them", 60)


HostOf = Callable[[Lines], BlockingHost]


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_the_protocol_is_told_of_its_connection(peer: socket.socket, host_of: HostOf) -> None:
    protocol = Lines()
    with host_of(protocol):
        (facts,) = protocol.facts
        assert (facts.peer, facts.encrypted, facts.certificate) == ("them", False, None)


def test_messages_wait_for_credit_and_what_arrives_meanwhile_is_kept(
    peer: socket.socket, host_of: HostOf
) -> None:
    protocol = Lines()
    protocol.credit = 2

    def give_credit() -> None:
        with peer.makefile("rb") as sent:
            assert [sent.readline() for _ in range(2)] == [b"0\n", b"1\n"]
            peer.sendall(b"question\n.credit 1\n")
            assert sent.readline() == b"2\n"
            peer.sendall(b".credit 7\n")
            assert [sent.readline() for _ in range(2)] == [b"3\n", b"4\n"]

    with host_of(protocol) as host:
        giving = in_thread(give_credit)
        host.send_many([b"%d" % number for number in range(5)])
        giving.join()
        assert protocol.given == [2, 1, 2]
        assert host.receive(timeout=0) == b"question"


def test_a_peer_that_is_not_ready_any_more_is_waited_for(peer: socket.socket, host_of: HostOf) -> None:
    protocol = Lines()
    with host_of(protocol) as host:
        protocol.ready = False
        peer.sendall(b".ready\n")
        host.send(b"late")
        assert peer.recv(100) == b"late\n"


def test_a_peer_that_hangs_up_while_it_gives_no_credit_is_lost(peer: socket.socket, host_of: HostOf) -> None:
    protocol = Lines()
    protocol.credit = 0
    with host_of(protocol) as host:
        peer.shutdown(socket.SHUT_WR)
        with pytest.raises(ConnectionLost, match="closed by the peer"):
            host.send(b"message")


@pytest.mark.parametrize("timeout", [None, 60])
def test_a_refusal_that_comes_later_is_told_to_the_call_that_learns_of_it(
    peer: socket.socket, host_of: HostOf, timeout: float | None
) -> None:
    with host_of(Lines()) as host:
        host.send(b"message")
        peer.sendall(b"an answer\n.refuse no such key\n")
        with pytest.raises(LocalProtocolError, match="them: no such key"):
            host.receive(timeout)
        assert host.receive(timeout) == b"an answer"  # it is not lost
        assert not host._protocol.refused  # type: ignore[attr-defined]


def test_what_the_peer_subscribes_to_is_in_effect_at_once_and_not_collected(
    peer: socket.socket, host_of: HostOf
) -> None:
    protocol = Lines()
    with host_of(protocol) as host:
        peer.sendall(b".subscribe a\n.subscribe b\nmessage\n")
        assert host.receive(60) == b"message"
        assert len(protocol.subscribed_at) == 1
        assert protocol.subscriptions == []


def test_logins_are_refused_with_a_word_on_what_to_use(peer: socket.socket, host_of: HostOf) -> None:
    with pytest.raises(LocalProtocolError, match="kind stream with the option authenticator"):
        host_of(Guarded())
    assert peer.recv(100).startswith(b"refused: ")


def test_a_peer_that_breaks_a_rule_is_told_and_read_no_more(peer: socket.socket, host_of: HostOf) -> None:
    with host_of(Lines()) as host:
        peer.sendall(b"before\n.fault\nbehind\n")
        with pytest.raises(RemoteProtocolError, match="a fault"):
            host.receive()
        assert peer.recv(100) == b"fault\n"
        assert peer.recv(100) == b""
        assert host.receive() == b"before"
        for timeout in (None, 60):
            with pytest.raises(ConnectionLost, match="a fault"):
                host.receive(timeout)
        with pytest.raises(ConnectionLost, match="a fault"):
            host.send(b"message")


@pytest.mark.parametrize("unread", [b"", b"unread"])
def test_the_last_bytes_reach_a_peer_that_is_still_sending(unread: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs = server.accept()[0]
    host = BlockingHost(PlainWire(ours), Lines(), "them")
    theirs.sendall(unread)
    time.sleep(0.05)
    closing = in_thread(host.close)
    time.sleep(0.05)
    with theirs:
        theirs.settimeout(60)
        assert theirs.recv(100) == b"bye\n"  # and no reset
        assert theirs.recv(100) == b""
        if unread:
            theirs.sendall(b"more")
    closing.join(60)
    assert not closing.is_alive()
    with pytest.raises(ConnectionLost, match="closed"):
        host.send(b"message")


def test_nobody_waits_long_for_a_peer_that_never_closes(
    peer: socket.socket, host_of: HostOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocking_host, "SECONDS", 0.01)
    host = host_of(Lines())
    peer.sendall(b"unread")
    host.close()
    assert peer.recv(100) == b"bye\n"


# ---------------------------------------------------------------------- TLS that begins later


def handshakes(options: TlsOptions, *, server_side: bool) -> Handshakes:
    address = parse_address("lines+tcp://127.0.0.1:1")
    return Handshakes(address, server_side=server_side, tls=options, seconds=60, waits=InThread())


def test_tls_begins_in_the_middle_of_a_call(ends: Ends, certificates: Certificates) -> None:
    protocol, peer = Secure(), ends.theirs
    ours = handshakes(TlsOptions(certificate=certificates.server), server_side=True)
    theirs = handshakes(TlsOptions(authorities=certificates.authorities), server_side=False)

    def begin_tls() -> None:
        peer.sendall(b".tls\n")
        assert peer.recv(100) == b"go\n"
        wire = finish(theirs.start_tls(peer))
        assert wire.connected is not None
        wire.connected.settimeout(60)
        wire.connected.sendall(b"secret\n")
        assert wire.connected.recv(100) == b"answer\n"
        wire.close()

    wire = PlainWire(ends.ours)
    with BlockingHost(wire, protocol, "them", 60, lambda plain: finish(ours.start_tls(plain))) as host:
        beginning = in_thread(begin_tls)
        assert host.receive() == b"secret"
        host.send(b"answer")
        beginning.join()
        before, after = protocol.facts
        assert (before.encrypted, after.encrypted) == (False, True)
        assert before.shared is after.shared
        with pytest.raises(ConnectionLost):
            host.receive()


def test_tls_that_cannot_begin_ends_the_connection(ends: Ends) -> None:
    ours = handshakes(TlsOptions(), server_side=True)
    wire = PlainWire(ends.ours)
    with BlockingHost(wire, Secure(), "them", 60, lambda plain: finish(ours.start_tls(plain))) as host:
        ends.theirs.sendall(b".tls\n")
        with pytest.raises(ConnectionLost, match=r"no TLS: .* tls\.certificate"):
            host.receive()
        for timeout in (None, 0):
            with pytest.raises(ConnectionLost, match="no TLS"):
                host.receive(timeout)
    assert ends.theirs.recv(100) == b"go\n"
    assert ends.theirs.recv(100) == b""


def test_tls_does_not_begin_below_another_wire(ends: Ends, certificates: Certificates) -> None:
    """As TLS over TLS, or below a WebSocket."""
    ours = handshakes(TlsOptions(certificate=certificates.server), server_side=True)
    client = ssl.create_default_context(cafile=certificates.authorities)
    far = MemoryClient(client, ends.theirs)
    shaking = in_thread(far.shake_hands)
    wire = finish(ours.start_tls(ends.ours))
    shaking.join()
    with BlockingHost(wire, Secure(), "them", 60, lambda plain: finish(ours.start_tls(plain))) as host:
        ends.theirs.sendall(far.encrypted(b".tls\n"))
        with pytest.raises(ConnectionLost, match="cannot begin on this connection"):
            host.receive()


def test_a_part_of_a_tls_record_makes_no_call_longer_than_its_timeout(
    ends: Ends, certificates: Certificates
) -> None:
    """The socket is readable then, but there is nothing to decrypt."""
    ours = handshakes(TlsOptions(certificate=certificates.server), server_side=True)
    far = MemoryClient(ssl.create_default_context(cafile=certificates.authorities), ends.theirs)
    shaking = in_thread(far.shake_hands)
    wire = finish(ours.start_tls(ends.ours))
    shaking.join()
    record = far.encrypted(b"message\n")
    with BlockingHost(wire, Lines(), "them") as host:
        ends.theirs.sendall(record[:10])
        with pytest.raises(TimedOut):
            host.receive(timeout=0.05)
        ends.theirs.sendall(record[10:])
        assert host.receive() == b"message"
        ends.theirs.sendall(far.encrypted(b"1\n2\n"))
        assert [host.receive(60), host.receive(60)] == [b"1", b"2"]


class MemoryClient:
    """TLS whose records can be seen before they are sent."""

    def __init__(self, context: ssl.SSLContext, connected: socket.socket) -> None:
        self._connected = connected
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname="127.0.0.1")

    def shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._connected.sendall(self._out.read())
                self._in.write(self._connected.recv(65536))
            else:
                self._connected.sendall(self._out.read())
                return

    def encrypted(self, data: bytes) -> bytes:
        self._tls.write(data)
        return self._out.read()


# ---------------------------------------------------------------------- handshakes in a thread


@pytest.mark.parametrize("transport", ["tls", "ws"])
def test_a_handshake_in_a_thread_has_a_limit(ends: Ends, transport: str) -> None:
    address = parse_address(f"lines+{transport}://127.0.0.1:1")
    shaking = Handshakes(address, server_side=False, tls=TlsOptions(), seconds=0.05, waits=InThread())
    with pytest.raises(ConnectionLost, match=r"within 0\.05 s"):
        finish(shaking.shake(ends.ours))
    assert ends.ours.fileno() < 0


def test_a_coroutine_that_needs_trio_is_not_run_in_a_thread(ends: Ends) -> None:
    async def sleep() -> None:
        await trio.sleep(1)

    with pytest.raises(RuntimeError):
        finish(sleep())
