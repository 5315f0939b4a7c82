"""PUB and XPUB: what is sent is routed by the engine's thread, and all that a publisher promises holds."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kernel.sockets import Context, Socket
from plugins.apis.sockets.context import RELAY_MARKS
from plugins.apis.sockets.end import PublishingEnd
from plugins.apis.sockets.options import TypeName
from tests.interop.until import until

TIMEOUT = 30.0


@pytest.fixture
def context() -> Iterator[Context]:
    made = Context()
    yield made
    made.close(linger=0)


@pytest.fixture(params=["tcp", "ipc", "inproc"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {"tcp": "tcp://127.0.0.1:0", "ipc": f"ipc://{tmp_path}/place", "inproc": "inproc://place"}[
        request.param
    ]


def subscriber(context: Context, at: str, *prefixes: str, **options: Any) -> Socket:
    sub = context.socket("SUB", rcvtimeo=TIMEOUT, **options)
    for prefix in prefixes:
        sub.subscribe(prefix)
    sub.connect(at)
    return sub


def end_of(pub: Socket) -> Any:
    assert isinstance(pub._end, PublishingEnd)
    return pub._end


@contextmanager
def held(pub: Socket) -> Iterator[None]:
    """Keep the thread that routes from doing so."""
    holds, goes_on = threading.Event(), threading.Event()

    def hold() -> None:
        holds.set()
        goes_on.wait(TIMEOUT)

    end_of(pub).relay._host.post(hold)
    assert holds.wait(TIMEOUT)
    try:
        yield
    finally:
        goes_on.set()


def test_all_ways_to_send_keep_the_order(context: Context, place: str) -> None:
    pub = context.socket("PUB")
    at = pub.bind(place)
    everything, some = subscriber(context, at, ""), subscriber(context, at, "a", "ab")
    pub.wait_for_subscribers(2, "a")
    sent = []
    for number in range(200):
        a, b = b"a%d" % number, b"b%d" % number
        pub.send(a)
        pub.send(b)
        pub.send_many([a, b])
        pub.send_multipart([a, b])
        pub.send(bytearray(a))
        sent += [[a], [b], [a], [b], [a, b], [a]]
    assert [everything.recv_multipart() for _ in sent] == sent
    wanted = [parts for parts in sent if parts[0].startswith(b"a")]
    assert [some.recv_multipart() for _ in wanted] == wanted


@pytest.mark.parametrize("kind", ["PUB", "XPUB"])
def test_what_follows_a_subscription_is_received(context: Context, place: str, kind: TypeName) -> None:
    """And what follows its end is not."""
    pub = context.socket(kind, rcvtimeo=TIMEOUT)
    sub = subscriber(context, pub.bind(place))
    for number in range(50):
        topic = b"topic %d" % number
        sub.subscribe(topic)
        if kind == "XPUB":
            assert pub.recv() == b"\1" + topic
        else:
            pub.wait_for_subscribers(topic=topic, timeout=TIMEOUT)
        pub.send(topic)
        assert sub.recv() == topic
        sub.unsubscribe(topic)
        if kind == "XPUB":
            assert pub.recv() == b"\0" + topic
        else:
            until(lambda topic=topic: not pub.subscribers(topic))  # type: ignore[misc]
        pub.send(topic)
    sub.subscribe("end")
    pub.wait_for_subscribers(topic="end", timeout=TIMEOUT)
    pub.send(b"end")
    assert sub.recv() == b"end"


def test_a_burst_that_sockets_take_is_not_dropped(context: Context) -> None:
    """However much more it is than a peer may be behind."""
    pub = context.socket("PUB", sndhwm=10)
    sub = subscriber(context, pub.bind("tcp://127.0.0.1:0"), "", rcvhwm=0)
    pub.wait_for_subscribers(timeout=TIMEOUT)
    bodies = [b"%d" % number for number in range(5000)]
    with held(pub):
        for body in bodies:
            pub.send(body)
        assert pub.statistics().peers[0].waiting == len(bodies)
    assert [sub.recv() for _ in bodies] == bodies
    assert pub.statistics().peers[0].dropped == 0


def test_what_the_thread_is_too_late_for_is_dropped_and_counted(context: Context) -> None:
    """For those who would have got it."""
    pub = context.socket("PUB", sndhwm=10)
    at = pub.bind("tcp://127.0.0.1:0")
    one, other = subscriber(context, at, "a", "", rcvhwm=0), subscriber(context, at, "b", rcvhwm=0)
    pub.wait_for_subscribers(2, "b")
    room, more = RELAY_MARKS.high, 300

    def dropped() -> list[int]:
        return sorted(peer.dropped for peer in pub.statistics().peers)

    with held(pub):
        for _ in range(room + more):
            pub.send(b"a")
        assert pub.statistics().peers[0].waiting == room
        pub.send_many([b"b"] * more)
        pub.send_multipart([b"b", b"more"])
    until(lambda: dropped() == [more + 1, 2 * more + 1])
    assert not other.readable()
    assert [one.recv() for _ in range(room)] == [b"a"] * room
    pub.send(b"b: there is room")
    assert other.recv() == b"b: there is room"
    assert dropped() == [more + 1, 2 * more + 1]


def test_as_many_large_messages_may_wait_as_small_ones(context: Context) -> None:
    size = RELAY_MARKS.high_bytes // 10
    pub = context.socket("PUB", sndhwm=20)
    sub = subscriber(context, pub.bind("inproc://place"), "", rcvhwm=0)
    pub.wait_for_subscribers(timeout=TIMEOUT)
    # One object, so it takes no memory.
    body = b"x" * size
    with held(pub):
        for _ in range(25):
            pub.send(body)
    until(lambda: pub.statistics().peers[0].dropped == 5)
    assert [len(sub.recv()) for _ in range(20)] == [size] * 20


def test_a_slow_subscriber_is_no_concern_of_others(context: Context) -> None:
    """It loses what it has no room for; the others get everything."""
    pub = context.socket("PUB", sndhwm=10)
    at = pub.bind("tcp://127.0.0.1:0")
    with Context() as others:
        slow = subscriber(others, at, "", rcvhwm=1)
        fast = subscriber(context, at, "", rcvhwm=0)
        pub.wait_for_subscribers(2)
        body = b"x" * 10_000
        for _ in range(3000):
            pub.send(body)
            assert fast.recv() == body
        peers = pub.statistics().peers
        assert sorted(bool(peer.dropped) for peer in peers) == [False, True]
        assert max(peer.waiting for peer in peers) <= 2 * 10
        assert slow.recv() == body
        slow.close(0)


@pytest.mark.parametrize("linger", [5.0, None])
def test_what_was_sent_goes_out_at_the_end(context: Context, linger: float | None) -> None:
    with Context() as other:
        pub = other.socket("PUB", sndhwm=0, linger=linger)
        sub = subscriber(context, pub.bind("tcp://127.0.0.1:0"), "", rcvhwm=0)
        pub.wait_for_subscribers(timeout=TIMEOUT)
        count = 50_000
        for number in range(count):
            pub.send(b"%d" % number)
        pub.close()
        assert [sub.recv() for _ in range(count)] == [b"%d" % number for number in range(count)]


def test_what_was_sent_goes_out_at_the_end_of_the_context(context: Context) -> None:
    count = 50_000
    with Context() as other:
        pub = other.socket("PUB", sndhwm=0)
        sub = subscriber(context, pub.bind("tcp://127.0.0.1:0"), "", rcvhwm=0)
        pub.wait_for_subscribers(timeout=TIMEOUT)
        for number in range(count):
            pub.send(b"%d" % number)
    assert [sub.recv() for _ in range(count)] == [b"%d" % number for number in range(count)]


@pytest.mark.parametrize("all_of_it", [False, True])
def test_without_a_time_to_linger_what_a_socket_takes_goes_out(context: Context, all_of_it: bool) -> None:
    with Context() as other:
        pub = other.socket("PUB")
        sub = subscriber(context, pub.bind("tcp://127.0.0.1:0"), "")
        pub.wait_for_subscribers(timeout=TIMEOUT)
        pub.send(b"the last one")
        if all_of_it:
            other.close(0)
        else:
            pub.close(0)
        assert sub.recv() == b"the last one"


def test_a_closed_publisher_leaves_nothing(context: Context) -> None:
    subs = []
    for number in range(5):
        pub = context.socket("XPUB")
        subs.append(subscriber(context, pub.bind("tcp://127.0.0.1:0"), "a", "b"))
        assert {pub.recv(timeout=TIMEOUT) for _ in range(2)} == {b"\1a", b"\1b"}
        pub.send(b"a%d" % number)
        pub.close()
        assert subs[-1].recv() == b"a%d" % number
    kernel = context.kernel
    until(lambda: not [each for each in kernel._dispatcher.ports() if "xpub" in each.name])
    assert not [route for route in kernel.plan.routes if "xpub" in route.label]
    assert not [pipe for pipe in kernel.statistics().pipes if "xpub" in pipe.name]


def test_nothing_is_kept_for_an_engine_that_has_failed(context: Context) -> None:
    pub = context.socket("PUB")
    at = pub.bind("tcp://127.0.0.1:0")
    failed = threading.Event()

    def fail(verb: str, pattern: str, outlet: Any) -> None:
        failed.set()
        raise RuntimeError("a test")

    end_of(pub).relay._tell = fail
    subscriber(context, at, "")
    assert failed.wait(TIMEOUT)
    until(lambda: context.kernel.engine_states()[0].failures == 1)
    for _ in range(1000):
        pub.send(b"nobody is there")
    assert sum(route.waiting for route in end_of(pub).port.routes) == 0


@pytest.mark.parametrize("wrong", [3, None, [b"a"]])
def test_what_is_no_prefix_is_refused(context: Context, wrong: Any) -> None:
    for kind in ("SUB", "XPUB"):
        with pytest.raises(
            TypeError, match=f"a prefix, or a group, is bytes or text, not {type(wrong).__name__}"
        ):
            context.socket(kind).subscribe(wrong)
