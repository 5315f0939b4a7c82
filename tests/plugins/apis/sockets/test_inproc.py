"""``inproc``: sockets of one context, without a socket of the system."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from kernel.contracts.errors import WouldBlock
from kernel.sockets import Context, PlaceError, Socket

TIMEOUT = 30.0
PLACE = "inproc://here"


@pytest.fixture
def context() -> Iterator[Context]:
    made = Context()
    yield made
    made.close(linger=0)


def make(context: Context, kind: Any, **options: Any) -> Socket:
    return context.socket(kind, sndtimeo=TIMEOUT, rcvtimeo=TIMEOUT, **options)


Join = Callable[[Socket, Socket], None]


def _bind_first(one: Socket, other: Socket) -> None:
    one.bind(PLACE)
    other.connect(PLACE)


def _connect_first(one: Socket, other: Socket) -> None:
    other.connect(PLACE)
    one.bind(PLACE)


def _other_way(one: Socket, other: Socket) -> None:
    other.bind(PLACE)
    one.connect(PLACE)


@pytest.fixture(params=[_bind_first, _connect_first, _other_way])
def join(request: pytest.FixtureRequest) -> Join:
    how: Join = request.param
    return how


def test_a_list_that_was_received_belongs_to_its_receiver(context: Context) -> None:
    pub = make(context, "PUB")
    pub.bind(PLACE)
    subs = [make(context, "SUB") for _ in range(2)]
    for sub in subs:
        sub.subscribe()
        sub.connect(PLACE)
    pub.wait_for_subscribers(2, timeout=TIMEOUT)
    bodies = [b"%d" % number for number in range(9)]
    pub.send_many(list(bodies))
    for sub in subs:
        got = [*sub.recv_many(2), sub.recv(), *sub.recv_many()]
        assert got == bodies
    pub.send_many(list(bodies))
    for sub in subs:
        got = sub.recv_many()
        assert got == bodies
        got.clear()


def test_push_and_pull(context: Context, join: Join) -> None:
    push, pull = make(context, "PUSH"), make(context, "PULL")
    join(push, pull)
    body = b"the same object"
    push.send(body)
    assert pull.recv() is body
    push.send_many([b"1", b"2"])
    push.send_multipart([b"a", b"b"])
    assert [pull.recv_multipart() for _ in range(3)] == [[b"1"], [b"2"], [b"a", b"b"]]


def test_publish_and_subscribe(context: Context, join: Join) -> None:
    pub, sub, other = make(context, "PUB"), make(context, "SUB"), make(context, "SUB")
    sub.subscribe("tea")
    join(pub, sub)
    sub.subscribe(b"\xff\xc3")
    other.bind("inproc://elsewhere")
    other.subscribe("")
    pub.connect("inproc://elsewhere")
    for topic in (b"teapot", b"\xff\xc3\x01"):
        pub.wait_for_subscribers(2, topic, timeout=TIMEOUT)
    for body in (b"coffee", b"teapot", b"\xff\xc3\x01"):
        pub.send(body)
    pub.send_multipart([b"tea", b"hot"])
    assert [sub.recv_multipart() for _ in range(3)] == [[b"teapot"], [b"\xff\xc3\x01"], [b"tea", b"hot"]]
    assert [other.recv_multipart()[0] for _ in range(4)] == [b"coffee", b"teapot", b"\xff\xc3\x01", b"tea"]
    sub.unsubscribe("tea")
    sub.unsubscribe(b"\xff\xc3")
    sub.subscribe("end")
    pub.wait_for_subscribers(2, b"end", timeout=TIMEOUT)
    pub.send_many([b"teapot", b"end"])
    assert sub.recv() == b"end"


def test_xpub_and_xsub(context: Context, join: Join) -> None:
    xpub, xsub = make(context, "XPUB"), make(context, "XSUB")
    join(xpub, xsub)
    xsub.send(b"\1tea")
    assert xpub.recv() == b"\1tea"
    xpub.send_many([b"coffee", b"tea"])
    assert xsub.recv() == b"tea"
    xsub.send(b"upstream")
    assert xpub.recv() == b"upstream"


def test_questions_and_answers(context: Context, join: Join) -> None:
    rep, req = make(context, "REP"), make(context, "REQ")
    join(rep, req)
    for parts in ([b"one"], [b"one", b"two"]):
        req.send_multipart(parts)
        assert rep.recv_multipart() == parts
        rep.send_multipart([*parts, b"!"])
        assert req.recv_multipart() == [*parts, b"!"]


@pytest.mark.parametrize("options, size", [({}, 3), ({"req_correlate": True}, 4)])
def test_a_router_sees_what_it_would_see_on_a_wire(
    context: Context, join: Join, options: dict[str, Any], size: int
) -> None:
    router, req = make(context, "ROUTER"), make(context, "REQ", identity=b"\xffme", **options)
    join(router, req)
    req.send(b"question")
    asked = router.recv_multipart()
    assert (asked[0], asked[-2:], len(asked)) == (b"\xffme", [b"", b"question"], size)
    router.send_multipart([*asked[:-1], b"answer"])
    assert req.recv() == b"answer"


def test_dealer_and_rep_behind_each_other(context: Context, join: Join) -> None:
    dealer, rep = make(context, "DEALER"), make(context, "REP")
    join(dealer, rep)
    dealer.send_multipart([b"hop", b"", b"question"])
    assert rep.recv() == b"question"
    rep.send(b"answer")
    assert dealer.recv_multipart() == [b"hop", b"", b"answer"]


def test_pair_has_one_peer(context: Context) -> None:
    one, other, third = (make(context, "PAIR") for _ in range(3))
    one.bind(PLACE)
    other.connect(PLACE)
    other.send(b"first")
    assert one.recv() == b"first"
    third.connect(PLACE)
    one.send(b"to the first")
    assert other.recv() == b"to the first"
    with pytest.raises(WouldBlock):
        third.recv(timeout=0)


def test_the_next_who_binds_gets_what_waits(context: Context) -> None:
    push, pull = make(context, "PUSH"), make(context, "PULL")
    push.connect(PLACE)
    pull.bind(PLACE)
    push.send(b"1")
    assert pull.recv() == b"1"
    # The name is free when this returns; the engine behind ``close`` ends in its own time.
    pull.unbind(PLACE)
    pull.close()
    again = make(context, "PULL")
    again.bind(PLACE)
    push.send_many([b"2", b"3"])
    assert [again.recv(), again.recv()] == [b"2", b"3"]


def test_a_name_is_bound_to_once(context: Context) -> None:
    make(context, "PULL").bind(PLACE)
    with pytest.raises(PlaceError, match="in use"):
        make(context, "PULL").bind(PLACE)


def test_the_wrong_type_is_refused(context: Context) -> None:
    pull, sub = make(context, "PULL"), make(context, "SUB")
    pull.bind(PLACE)
    refused: SimpleQueue[str] = SimpleQueue()
    context.kernel.events.append(lambda event: refused.put(event.detail) if event.what == "refused" else None)
    sub.connect(PLACE)
    assert refused.get(timeout=TIMEOUT) == "the peer is PULL, which SUB cannot talk to"
