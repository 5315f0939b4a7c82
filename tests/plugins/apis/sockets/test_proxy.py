"""A proxy between sockets of this kernel, with libzmq (pyzmq) on both of its sides."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from kernel.sockets import Context, Socket, proxy
from tests.plugins.apis.sockets.test_with_pyzmq import TIMEOUT, Peers, context, make, peers

__all__ = ["context", "peers"]

pytestmark = pytest.mark.peer("pyzmq")
PLACE = "tcp://127.0.0.1:0"

Run = Callable[..., threading.Thread]


@pytest.fixture
def run(context: Context) -> Iterator[Run]:
    """Run a proxy in a thread, which has to end with its context."""
    threads: list[threading.Thread] = []

    def begin(front: Socket, back: Socket, capture: Socket | None = None) -> threading.Thread:
        threads.append(threading.Thread(target=proxy, args=(front, back), kwargs={"capture": capture}))
        threads[-1].start()
        return threads[-1]

    yield begin
    context.close(linger=0)
    for thread in threads:
        thread.join(TIMEOUT)
        assert not thread.is_alive()


def test_questions_are_shared_out(context: Context, peers: Peers, run: Run) -> None:
    front, back, capture = make(context, "ROUTER"), make(context, "DEALER"), make(context, "PUSH")
    ask, answer, seen = peers("REQ"), peers("REP"), peers("PULL")
    ask.connect(front.bind(PLACE))
    answer.connect(back.bind(PLACE))
    seen.connect(capture.bind(PLACE))
    run(front, back, capture)
    for number in (b"1", b"2"):
        ask.send_multipart([b"question", number])
        assert answer.recv_multipart() == [b"question", number]
        answer.send(number)
        assert ask.recv() == number
    told = [seen.recv_multipart()[1:] for _ in range(4)]
    assert told == [[b"", b"question", b"1"], [b"", b"1"], [b"", b"question", b"2"], [b"", b"2"]]


def test_a_forwarder(context: Context, peers: Peers, run: Run) -> None:
    front, back = make(context, "XSUB"), make(context, "XPUB")
    pub, sub = peers("XPUB"), peers("SUB")
    pub.connect(front.bind(PLACE))
    sub.connect(back.bind(PLACE))
    run(front, back)
    sub.subscribe("a")
    assert pub.recv() == b"\1a"
    pub.send(b"b is not wanted")
    pub.send_multipart([b"a", b"is"])
    assert sub.recv_multipart() == [b"a", b"is"]


def test_messages_wait_for_room(context: Context, peers: Peers, run: Run) -> None:
    """Nothing is lost, and the other direction is not held up."""
    front, back = make(context, "PULL", rcvhwm=2), make(context, "PUSH", sndhwm=2)
    push, pull = peers("PUSH"), peers("PULL")
    push.connect(front.bind(PLACE))
    run(front, back)
    for number in range(500):
        push.send(b"%d" % number)
    pull.connect(back.bind(PLACE))
    assert [pull.recv() for _ in range(500)] == [b"%d" % number for number in range(500)]


def test_it_ends_with_a_socket(context: Context, run: Run) -> None:
    front, back = make(context, "PULL"), make(context, "PUSH")
    front.bind(PLACE)
    with Context() as other:
        thread = run(front, other.socket("PUSH"))
        assert thread.is_alive()
    thread.join(TIMEOUT)
    assert not thread.is_alive()
    back.close()


def test_a_proxy_that_is_steered() -> None:
    """Commands and answers are those of ``zmq_proxy_steerable``."""
    with Context() as context:
        front, back, control = context.socket("PULL"), context.socket("PUSH"), context.socket("REP")
        push, pull = context.socket("PUSH"), context.socket("PULL", rcvtimeo=TIMEOUT)
        steer = context.socket("REQ", rcvtimeo=TIMEOUT)
        for bound, connected in ((front, push), (back, pull), (control, steer)):
            connected.connect(bound.bind("tcp://127.0.0.1:0"))
        thread = threading.Thread(target=proxy, args=(front, back), kwargs={"control": control})
        thread.start()

        def ask(command: bytes) -> list[bytes]:
            steer.send(command)
            return steer.recv_multipart()

        push.send_multipart([b"one", b"message"])
        assert pull.recv_multipart() == [b"one", b"message"]
        figures = [int.from_bytes(each, sys.byteorder) for each in ask(b"STATISTICS")]
        assert figures == [1, 10, 0, 0, 0, 0, 1, 10]
        assert ask(b"PAUSE") == [b""]
        push.send(b"later")
        # It is paused behind its answer, whenever the message comes.
        assert ask(b"STATISTICS")[0] == (1).to_bytes(8, sys.byteorder)
        assert not pull.readable()
        assert ask(b"RESUME") == [b""]
        assert pull.recv() == b"later"
        assert ask(b"TERMINATE") == [b""]
        thread.join(TIMEOUT)
        assert not thread.is_alive()
