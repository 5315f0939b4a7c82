"""Each pattern with a libzmq that speaks ZMTP 1.0 or 2.0, because what stands between both greets in that version.

No option of libzmq 4 has it begin in an older version, but it answers in that of its peer.  So does the engine.  A relay that
changes one byte in each direction makes each the older peer of the other, and all other bytes are theirs.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from kernel.sockets import Context, Socket
from plugins.protocols.zmtp.greeting import SIGNATURE
from tests.interop.until import until
from tests.plugins.engines.zmq.test_pyzmq import TIMEOUT, Sockets, sockets

__all__ = ["sockets"]

pytestmark = pytest.mark.peer("pyzmq")

CHANGES = {
    # 37/ZMTP, "Detecting ZMTP 1.0 and 2.0 Peers": the tenth byte are the flags of a frame with an identity, whose lowest
    # bit is 0 in an identity.  15/ZMTP: revision 1 is 2.0.
    "1.0": (9, SIGNATURE[9], 0),
    "2.0": (10, 3, 1),
}
"""Where a greeting is changed, what is there, and what comes in its place."""
ANY = "tcp://127.0.0.1:0"
BODIES = [b"", b"hello", *(b"x" * size for size in (253, 254, 255, 256, 70_000))]
PARTS = [b"a", b"", b"y" * 300, b"z"]


class Relay:
    """Passes connections on to a place, and changes their greetings."""

    def __init__(self, version: str, to: str) -> None:
        self._change = CHANGES[version]
        self._to = int(to.rpartition(":")[2])
        self.passed: list[bytearray] = []
        """What has gone in each direction of each connection, after the change."""
        self._sockets = [socket.create_server(("127.0.0.1", 0))]
        self.place = f"tcp://127.0.0.1:{self._sockets[0].getsockname()[1]}"
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def _start(self, work: Callable[..., None], *arguments: Any) -> None:
        self._threads.append(threading.Thread(target=work, args=arguments))
        self._threads[-1].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._sockets[0].accept()
                far = socket.create_connection(("127.0.0.1", self._to))
                self._sockets += (near, far)
                for source, target in ((near, far), (far, near)):
                    self.passed.append(bytearray())
                    self._start(self._pass_on, source, target, self.passed[-1])

    def _pass_on(self, source: socket.socket, target: socket.socket, passed: bytearray) -> None:
        at, old, new = self._change
        with suppress(OSError):
            while data := bytearray(source.recv(65_536)):
                index = at - len(passed)
                if 0 <= index < len(data):
                    assert data[index] == old
                    data[index] = new
                passed += data
                target.sendall(data)

    def close(self) -> None:
        for each in self._sockets:
            # A thread may be in a call with it, which ``close`` alone would not end.
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(TIMEOUT)
            assert not thread.is_alive()


Open = Callable[..., tuple[Socket, Any]]


@pytest.fixture(params=list(CHANGES))
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["binds", "connects"])
def open_pair(request: pytest.FixtureRequest, version: str, sockets: Sockets) -> Iterator[Open]:
    """Makes a socket of ours, which binds or connects, and one of pyzmq, with a relay between both."""
    relays = []
    with Context() as context:

        def make(
            ours: Any, theirs: str, prepare: Callable[[Socket, Any], Any] = lambda *_: None, **peer: Any
        ) -> tuple[Socket, Any]:
            mine = context.socket(ours, rcvtimeo=TIMEOUT, sndtimeo=TIMEOUT, linger=0)
            other = sockets(theirs, **peer)
            prepare(mine, other)
            if request.param == "binds":
                relays.append(Relay(version, mine.bind(ANY)))
                other.connect(relays[-1].place)
            else:
                other.bind(ANY)
                relays.append(Relay(version, other.last_endpoint.decode()))
                mine.connect(relays[-1].place)
            return mine, other

        yield make
    for relay in relays:
        relay.close()
        assert len(relay.passed) == 2
        for passed in relay.passed:
            # The handshake of version 3 has not come about.
            assert b"NULL" not in passed
            assert b"READY" not in passed


def test_push(open_pair: Open) -> None:
    push, pull = open_pair("PUSH", "PULL")
    for body in BODIES:
        push.send(body)
    push.send_multipart(PARTS)
    assert [pull.recv() for _ in BODIES] == BODIES
    assert pull.recv_multipart() == PARTS


def test_pull(open_pair: Open) -> None:
    pull, push = open_pair("PULL", "PUSH")
    for body in BODIES:
        push.send(body)
    push.send_multipart(PARTS)
    assert [pull.recv() for _ in BODIES] == BODIES
    assert pull.recv_multipart() == PARTS


@pytest.mark.parametrize("kind", ["PUB", "XPUB"])
def test_publishers(open_pair: Open, version: str, kind: str) -> None:
    pub, sub = open_pair(kind, "SUB", lambda _, sub: sub.subscribe("tea"))
    # A peer of 1.0 does not tell what it has subscribed to, and gets everything.
    topic = "tea" if version == "2.0" else ""
    # libzmq notices a new connection to a socket that is bound, and subscribes there, only in a call.
    until(lambda: sub.poll(0) or pub.subscribers(topic))
    for key, body in ((b"coffee", b"1"), (b"tea", b"2"), (b"teapot", b"x" * 70_000)):
        pub.send_multipart([key, body])
    assert [sub.recv_multipart() for _ in range(2)] == [[b"tea", b"2"], [b"teapot", b"x" * 70_000]]


@pytest.mark.parametrize("kind", ["SUB", "XSUB"])
def test_subscribers(open_pair: Open, version: str, kind: str) -> None:
    sub, pub = open_pair(kind, "XPUB", lambda sub, _: sub.subscribe("tea"))
    # libzmq subscribes to everything for a peer of 1.0, as it does not tell.
    assert pub.recv() == (b"\1tea" if version == "2.0" else b"\1")
    for key, body in ((b"coffee", b"1"), (b"tea", b"2"), (b"teapot", b"x" * 70_000)):
        pub.send_multipart([key, body])
    wanted = [[b"tea", b"2"], [b"teapot", b"x" * 70_000]]
    if kind == "XSUB" and version == "1.0":
        wanted.insert(0, [b"coffee", b"1"])
    assert [sub.recv_multipart() for _ in wanted] == wanted


def test_pair(open_pair: Open) -> None:
    mine, other = open_pair("PAIR", "PAIR")
    for sends, receives in ((mine, other), (other, mine)):
        sends.send_multipart(PARTS)
        assert receives.recv_multipart() == PARTS


def test_questions_and_answers(open_pair: Open) -> None:
    for ours, theirs in (("REQ", "REP"), ("REP", "REQ"), ("REQ", "ROUTER"), ("REP", "DEALER")):
        mine, other = open_pair(ours, theirs)
        asks, answers = (mine, other) if ours == "REQ" else (other, mine)
        before = [b""] if theirs == "DEALER" else []
        for body in BODIES:
            asks.send_multipart([*before, body])
            *address, question = answers.recv_multipart()
            answers.send_multipart([*address, b"re: " + question])
            assert asks.recv_multipart() == [*before, b"re: " + body]


@pytest.mark.parametrize("identity", [b"", b"anna", b"x" * 255], ids=len)
def test_a_router_knows_a_dealer_by_its_identity(open_pair: Open, identity: bytes) -> None:
    options = {"routing_id": identity} if identity else {}
    router, dealer = open_pair("ROUTER", "DEALER", **options)
    dealer.send_multipart(PARTS)
    name, *parts = router.recv_multipart()
    assert parts == PARTS
    if identity:
        assert name == identity
    router.send_multipart([name, *PARTS])
    assert dealer.recv_multipart() == PARTS


def test_a_dealer_tells_its_identity(open_pair: Open) -> None:
    def name(mine: Socket, _: Any) -> None:
        mine.options["identity"] = b"berta"

    dealer, router = open_pair("DEALER", "ROUTER", name)
    dealer.send_multipart(PARTS)
    assert router.recv_multipart() == [b"berta", *PARTS]
    router.send_multipart([b"berta", *PARTS])
    assert dealer.recv_multipart() == PARTS
