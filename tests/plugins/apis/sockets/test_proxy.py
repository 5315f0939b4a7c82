"""A proxy between sockets of this kernel, with libzmq (pyzmq) on both of its sides."""

from __future__ import annotations

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
