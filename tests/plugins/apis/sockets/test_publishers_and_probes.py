"""What goes to each new peer, XPUB's modes, and waits between attempts, with libzmq (pyzmq) on the other side."""

from __future__ import annotations

from typing import Any

import pytest

from kernel.contracts.errors import KernelError
from kernel.sockets import Again, Context, NotSupported, SocketError
from tests.plugins.apis.sockets.test_with_pyzmq import TIMEOUT, Join, Peers, context, join, make, peers

__all__ = ["context", "join", "peers"]

pytestmark = pytest.mark.peer("pyzmq")


def test_a_probe_of_ours(context: Context, peers: Peers, join: Join) -> None:
    dealer, router = make(context, "DEALER", identity=b"me", hello=b""), peers("ROUTER")
    join(dealer, router)
    assert router.recv_multipart() == [b"me", b""]
    router.send_multipart([b"me", b"known"])
    assert dealer.recv() == b"known"


def test_a_probe_of_libzmq(context: Context, peers: Peers) -> None:
    """It sends one where it connects."""
    router, dealer = make(context, "ROUTER"), peers("DEALER", routing_id=b"me", probe_router=1)
    dealer.connect(router.bind("tcp://127.0.0.1:0"))
    assert router.recv_multipart() == [b"me", b""]


def test_a_welcome_of_ours(context: Context, peers: Peers, join: Join) -> None:
    pub, sub = make(context, "XPUB", hello=b"welcome"), peers("SUB")
    sub.subscribe("wel")
    join(pub, sub)
    assert sub.recv() == b"welcome"


def test_a_welcome_among_ours(context: Context) -> None:
    with Context() as other:
        pub, sub = make(other, "XPUB", hello=b"welcome"), make(context, "SUB")
        sub.subscribe("wel")
        sub.connect(pub.bind("tcp://127.0.0.1:0"))
        assert sub.recv() == b"welcome"


def test_within_a_context(context: Context) -> None:
    """A subscriber of ``inproc`` gets it when it has subscribed to it, and once."""
    router, dealer = make(context, "ROUTER"), make(context, "DEALER", identity=b"me", hello=b"")
    router.bind("inproc://router")
    dealer.connect("inproc://router")
    assert router.recv_multipart() == [b"me", b""]
    pub, sub = make(context, "XPUB", hello=b"welcome"), make(context, "SUB")
    pub.bind("inproc://pub")
    sub.connect("inproc://pub")
    for prefix in ("other", "wel", "welcome"):
        sub.subscribe(prefix)
        pub.wait_for_subscribers(topic=prefix)
    pub.send(b"welcome again")
    assert [sub.recv(), sub.recv()] == [b"welcome", b"welcome again"]


@pytest.mark.parametrize(
    "options, told",
    [
        ({}, [b"\1a", b"\0a"]),
        ({"xpub_verbose": True}, [b"\1a", b"\1a", b"\0a"]),
        ({"xpub_verboser": True}, [b"\1a", b"\1a", b"\0a", b"\0a"]),
    ],
)
def test_which_subscriptions_are_told(
    context: Context, peers: Peers, options: dict[str, Any], told: list[bytes]
) -> None:
    """Of two subscribers, by this side and by libzmq."""
    import zmq

    ours, theirs = make(context, "XPUB", **options), peers("XPUB")
    for name in options:
        theirs.setsockopt(getattr(zmq, name.upper()), 1)
    theirs.bind("tcp://127.0.0.1:0")
    for pub, place in ((ours, ours.bind("tcp://127.0.0.1:0")), (theirs, theirs.last_endpoint.decode())):
        subs = [peers("XSUB") for _ in range(2)]
        got = []
        for number, verb in enumerate((b"\1", b"\0")):
            for sub in subs:
                if verb == b"\1":
                    sub.connect(place)
                sub.send(verb + b"a")
                # Behind it: what it has told is there when this is.
                mark = b"\1%d of %d" % (number, subs.index(sub))
                sub.send(mark)
                got += iter(pub.recv, mark)
        assert got == told


def test_a_publisher_that_waits_for_its_subscribers(context: Context) -> None:
    pub, sub = context.socket("XPUB", sndhwm=2, xpub_nodrop=True), make(context, "SUB", rcvhwm=2)
    pub.bind("inproc://place")
    sub.subscribe()
    sub.connect("inproc://place")
    assert pub.recv(timeout=TIMEOUT) == b"\1"
    sent = 0
    while pub.writable():
        pub.send(b"%d" % sent, timeout=0)
        sent += 1
    with pytest.raises(Again):
        pub.send(b"one too many", timeout=0)
    assert [sub.recv() for _ in range(sent)] == [b"%d" % number for number in range(sent)]
    pub.send(b"and on", timeout=TIMEOUT)
    assert sub.recv() == b"and on"


@pytest.mark.parametrize("place", ["tcp://127.0.0.1:0", "inproc://place"], ids=["tcp", "inproc"])
def test_a_publisher_that_keeps_last_values(context: Context, place: str) -> None:
    """With ``xpub_manual_last_value`` only the new subscriber gets what is sent for its subscription."""
    pub = make(context, "XPUB", xpub_manual_last_value=True)
    at = pub.bind(place)
    subs = [make(context, "SUB") for _ in range(2)]
    for sub in subs:
        sub.subscribe("weather")
        sub.connect(at)
        assert pub.recv() == b"\1weather"
        pub.subscribe("weather")
        pub.send(b"weather: sunny")
    assert pub.subscribers("weather") == 2
    pub.send(b"weather: rain")
    assert [[sub.recv(), sub.recv()] for sub in subs] == [[b"weather: sunny", b"weather: rain"]] * 2
    subs[0].close()
    assert pub.recv() == b"\0weather"
    pub.unsubscribe("weather")
    pub.send(b"weather: snow")
    assert subs[1].recv() == b"weather: snow"
    assert pub.subscribers() == 1


def test_who_decides_is_said_before_the_first_place(context: Context) -> None:
    pub = make(context, "XPUB")
    with pytest.raises(NotSupported, match="only with xpub_manual"):
        pub.subscribe("weather")
    pub.bind("inproc://place")
    with pytest.raises(KernelError, match="before the first bind or connect"):
        pub.options["xpub_manual"] = True
    both = make(context, "XPUB", xpub_manual=True, invert_matching=True)
    with pytest.raises(SocketError, match="do not go together"):
        both.bind("inproc://other")


@pytest.mark.parametrize("theirs", ["nobody", "XSUB", "XPUB", "both"])
@pytest.mark.parametrize(
    "only_first, parts, rest, topics",
    [
        (True, [b"user", b"\1B"], [b"user", b"\1B"], []),
        (False, [b"user", b"\1B"], [b"user"], [b"B"]),
        (True, [b"\1A", b"\1B", b"data"], [b"data"], [b"A", b"B"]),
        (False, [b"\1A", b"\1B", b"data"], [b"data"], [b"A", b"B"]),
    ],
)
def test_which_parts_subscribe(
    context: Context,
    peers: Peers,
    theirs: str,
    only_first: bool,
    parts: list[bytes],
    rest: list[bytes],
    topics: list[bytes],
) -> None:
    """``ZMQ_ONLY_FIRST_SUBSCRIBE``, with libzmq as nobody, as either side, and as both."""
    import zmq

    def open_one(kind: str) -> Any:
        if theirs not in (kind, "both"):
            return make(context, kind, only_first_subscribe=only_first)
        peer = peers(kind)
        peer.setsockopt(zmq.ONLY_FIRST_SUBSCRIBE, only_first)
        return peer

    pub, sub = open_one("XPUB"), open_one("XSUB")
    pub.bind("tcp://127.0.0.1:0")
    place = pub.last_endpoint
    sub.connect(place if isinstance(place, str) else place.decode())
    sub.send(b"\1begin")
    assert pub.recv() == b"\1begin"
    sub.send_multipart(parts)
    sub.send(b"last")
    sub.send(b"\1end")
    # Messages and subscriptions go different ways.  What libzmq has of a subscription behind other parts is one more
    # part of their message.
    told: list[bytes] = []
    while not {b"last", b"\1end"} <= set(told):
        told += pub.recv_multipart()
    assert [part for part in told if part[:1] != b"\1" or part in rest] == [*rest, b"last"]
    for topic in (b"A", b"B", b"end"):
        pub.send(topic)
    assert list(iter(sub.recv, b"end")) == topics


@pytest.mark.parametrize("verbose", [False, True])
def test_which_subscriptions_an_xsub_takes_back(context: Context, peers: Peers, verbose: bool) -> None:
    """``ZMQ_XSUB_VERBOSE_UNSUBSCRIBE``, which is a draft: by what an XPUB of libzmq is told."""
    pub = peers("XPUB")
    pub.bind("tcp://127.0.0.1:0")
    sub = make(context, "XSUB", xsub_verbose_unsubscribe=verbose)
    sub.connect(pub.last_endpoint.decode())
    sub.send(b"\1begin")
    assert pub.recv() == b"\1begin"
    for told in (b"\1a", b"\1a", b"\0a", b"\1mark", b"\1a", b"\0a", b"\0a", b"\0a", b"\1end"):
        sub.send(told)
    first, second = list(iter(pub.recv, b"\1mark")), list(iter(pub.recv, b"\1end"))
    if verbose:
        assert (first, second) == ([b"\1a", b"\0a"], [b"\1a", b"\0a"])
    else:
        assert (first, second) == ([b"\1a"], [b"\0a"])


def test_how_many_topics_there_are(context: Context) -> None:
    """``ZMQ_TOPICS_COUNT``: a prefix counts once, however many have it."""
    pub, subs = make(context, "XPUB"), [make(context, "SUB") for _ in range(2)]
    place = pub.bind("tcp://127.0.0.1:0")
    for number, sub in enumerate(subs):
        sub.connect(place)
        for prefix in (b"a", b"a", b"b%d" % number, b"end"):
            sub.subscribe(prefix)
    pub.wait_for_subscribers(2, b"end", timeout=TIMEOUT)
    assert [each.topics() for each in (pub, *subs)] == [4, 3, 3]
    subs[0].unsubscribe(b"b0")
    subs[0].unsubscribe(b"a")
    # What comes first: that peers have subscribed.
    assert all(told[:1] == b"\1" for told in iter(pub.recv, b"\0b0"))
    assert [each.topics() for each in (pub, *subs)] == [3, 2, 3]
    with pytest.raises(NotSupported, match="PULL has no subscriptions"):
        make(context, "PULL").topics()
