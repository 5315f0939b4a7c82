"""Each type against libzmq (pyzmq), which binds or connects, over tcp and ipc."""

from __future__ import annotations

import errno
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernel.contracts.errors import KernelClosed, KernelError, TimedOut, WouldBlock
from kernel.sockets import (
    OPTIONS,
    Again,
    Context,
    ContextClosed,
    NotSupported,
    Option,
    OptionError,
    PlaceError,
    Socket,
    SocketClosed,
    Unreachable,
    WrongState,
    poll,
)
from plugins.apis.sockets.options import TYPES
from tests.interop.until import until

pytestmark = pytest.mark.peer("pyzmq")
TIMEOUT = 30.0
PAGE = Path(__file__).parents[4] / "docs" / "sockets.md"


@pytest.fixture
def context() -> Iterator[Context]:
    made = Context()
    yield made
    made.close(linger=0)


class Peers:
    """Sockets of pyzmq, which are closed after the test."""

    def __init__(self) -> None:
        import zmq

        self._zmq = zmq
        self.context = zmq.Context()
        self._made: list[Any] = []

    def __call__(self, kind: str, **options: Any) -> Any:
        socket = self.context.socket(getattr(self._zmq, kind))
        self._made.append(socket)
        for name, value in {
            "rcvtimeo": int(TIMEOUT * 1000),
            "sndtimeo": int(TIMEOUT * 1000),
            "linger": 0,
            **options,
        }.items():
            setattr(socket, name, value)
        return socket

    def close(self) -> None:
        for socket in self._made:
            socket.close()
        self.context.term()


@pytest.fixture
def peers() -> Iterator[Peers]:
    made = Peers()
    yield made
    made.close()


Join = Callable[[Socket, Any], None]


@pytest.fixture(params=["binds-tcp", "connects-tcp", "binds-ipc", "connects-ipc"])
def join(request: pytest.FixtureRequest, tmp_path: Path) -> Join:
    """Connect a socket of ours with one of pyzmq."""
    role, transport = request.param.split("-")
    place = "tcp://127.0.0.1:0" if transport == "tcp" else f"ipc://{tmp_path}/socket"

    def connect(ours: Socket, theirs: Any) -> None:
        if role == "binds":
            theirs.connect(ours.bind(place))
        else:
            theirs.bind(place)
            ours.connect(theirs.last_endpoint.decode())

    return connect


def make(context: Context, kind: Any, **options: Any) -> Socket:
    return context.socket(kind, sndtimeo=TIMEOUT, rcvtimeo=TIMEOUT, **options)


BODIES: list[bytes] = [b"", b"hello", b"x" * 255, b"y" * 256, b"z" * 300_000, *[b"same"] * 50]


def test_push(context: Context, peers: Peers, join: Join) -> None:
    push, pull = make(context, "PUSH"), peers("PULL")
    join(push, pull)
    for body in BODIES:
        push.send(body)
    push.send_many(BODIES)
    push.send_multipart([b"a", b"", b"c"])
    push.send_multipart_many([[b"a", b"b"], [b"c", b"d"]])
    assert [pull.recv() for _ in BODIES * 2] == BODIES * 2
    assert [pull.recv_multipart() for _ in range(3)] == [[b"a", b"", b"c"], [b"a", b"b"], [b"c", b"d"]]


def test_pull(context: Context, peers: Peers, join: Join) -> None:
    pull, push = make(context, "PULL"), peers("PUSH")
    join(pull, push)
    for body in BODIES:
        push.send(body)
    assert [pull.recv() for _ in BODIES] == BODIES
    assert not pull.more
    push.send_multipart([b"a", b"", b"c"])
    assert (pull.recv(), pull.more, pull.recv_multipart(), pull.more) == (b"a", True, [b"", b"c"], False)
    for body in BODIES:
        push.send(body)
    got: list[bytes] = []
    while len(got) < len(BODIES):
        got += pull.recv_many(10)
    assert got == BODIES
    push.send(b"one")
    push.send_multipart([b"a", b"b"])
    push.send(b"two")
    whole: list[list[bytes]] = []
    while len(whole) < 3:
        whole += pull.recv_multipart_many()
    assert whole == [[b"one"], [b"a", b"b"], [b"two"]]


def test_many_of_one_part_are_not_joined_from_several(context: Context, peers: Peers, join: Join) -> None:
    pull, push = make(context, "PULL"), peers("PUSH")
    join(pull, push)
    push.send_multipart([b"a", b"b"])
    with pytest.raises(ValueError, match="recv_multipart_many"):
        pull.recv_many()
    assert pull.recv_multipart() == [b"a", b"b"]


@pytest.mark.parametrize("kind", ["PUB", "XPUB"])
def test_publishers(context: Context, peers: Peers, join: Join, kind: str) -> None:
    pub, sub = make(context, kind), peers("SUB")
    sub.subscribe(b"tea")
    sub.subscribe(b"\xff\xc3")
    join(pub, sub)
    # libzmq notices a connection to a socket that is bound, and subscribes there, only in a call.
    until(lambda: (sub.poll(0), pub.subscribers("teapot") and pub.subscribers(b"\xff\xc3"))[1])
    pub.wait_for_subscribers(topic="teapot", timeout=TIMEOUT)
    for body in (b"coffee", b"teapot", b"te", b"\xff\xc3\x01"):
        pub.send(body)
    pub.send_multipart([b"tea", b"hot"])
    pub.send_many([b"milk", b"tea!"])
    assert [sub.recv_multipart() for _ in range(4)] == [
        [b"teapot"],
        [b"\xff\xc3\x01"],
        [b"tea", b"hot"],
        [b"tea!"],
    ]
    # A place that is connected to keeps the subscriptions of its peer while it is away.
    for prefix in (b"tea", b"\xff\xc3"):
        sub.unsubscribe(prefix)
    until(lambda: (sub.poll(0), pub.subscribers() == 0)[1])
    with pytest.raises(Again, match="fewer than 1 subscribers to 'tea'"):
        pub.wait_for_subscribers(topic="tea", timeout=0.01)


@pytest.mark.parametrize("kind", ["SUB", "XSUB"])
def test_subscribers(context: Context, peers: Peers, join: Join, kind: str) -> None:
    sub, pub = make(context, kind), peers("XPUB")
    sub.subscribe("tea")
    sub.subscribe(b"\xff\xc3")
    join(sub, pub)
    assert sorted(pub.recv() for _ in range(2)) == [b"\1tea", b"\1\xff\xc3"]
    for body in (b"coffee", b"teapot", b"\xff\xc3\x01"):
        pub.send(body)
    assert [sub.recv(), sub.recv()] == [b"teapot", b"\xff\xc3\x01"]
    # Twice, and only the last one is taken back.
    sub.subscribe("tea")
    sub.unsubscribe("tea")
    sub.unsubscribe(b"\xff\xc3")
    assert pub.recv() == b"\0\xff\xc3"


def test_xpub_receives_subscriptions(context: Context, peers: Peers, join: Join) -> None:
    xpub, xsub = make(context, "XPUB"), peers("XSUB")
    join(xpub, xsub)
    for message in (b"\1tea", b"\1\xff", b"\0tea"):
        xsub.send(message)
        # libzmq notices a connection to a socket that is bound only in a call.
        until(lambda: (xsub.poll(0), xpub.readable())[1])
        assert xpub.recv() == message


def test_xpub_hears_that_a_subscriber_has_gone(context: Context, peers: Peers) -> None:
    xpub, sub, other = make(context, "XPUB"), peers("SUB"), peers("SUB")
    for each in (sub, other):
        each.subscribe(b"tea")
        each.connect(xpub.bind("tcp://127.0.0.1:0"))
    assert xpub.recv() == b"\1tea"
    xpub.wait_for_subscribers(2, timeout=TIMEOUT)
    sub.close()
    xpub.options["xpub_verbose"] = True
    other.subscribe(b"milk")
    assert xpub.recv() == b"\1milk"
    other.close()
    assert sorted(xpub.recv() for _ in range(2)) == [b"\0milk", b"\0tea"]


def test_xsub_subscribes_by_messages(context: Context, peers: Peers, join: Join) -> None:
    xsub, xpub = make(context, "XSUB"), peers("XPUB")
    join(xsub, xpub)
    xsub.send(b"\1tea")
    assert xpub.recv() == b"\1tea"
    xsub.send(b"no subscription")
    assert xpub.recv() == b"no subscription"
    xsub.send(b"\0tea")
    assert xpub.recv() == b"\0tea"


def test_batch_calls_of_types_that_take_turns_or_look_at_messages(context: Context, peers: Peers) -> None:
    xsub, rep, req = make(context, "XSUB"), make(context, "REP"), make(context, "REQ")
    xpub, asker, answerer = peers("XPUB"), peers("REQ"), peers("REP")
    for ours, theirs in ((xsub, xpub), (rep, asker), (req, answerer)):
        theirs.connect(ours.bind("tcp://127.0.0.1:0"))
    xsub.send_many([b"\1tea", b"\1milk"])
    assert sorted(xpub.recv() for _ in range(2)) == [b"\1milk", b"\1tea"]
    xpub.send(b"tea")
    assert xsub.recv_many() == [b"tea"]
    asker.send(b"question")
    assert rep.recv_many() == [b"question"]
    with pytest.raises(WrongState):
        rep.recv_many()
    with pytest.raises(NotSupported):
        rep.send_many([b"1", b"2"])
    rep.send(b"answer")
    assert asker.recv() == b"answer"
    req.send(b"question")
    answerer.send(answerer.recv())
    assert req.recv_multipart_many() == [[b"question"]]
    with pytest.raises(NotSupported):
        req.send_many([b"1", b"2"])


def test_pair(context: Context, peers: Peers, join: Join) -> None:
    ours, theirs = make(context, "PAIR"), peers("PAIR")
    join(ours, theirs)
    ours.send(b"there")
    assert theirs.recv() == b"there"
    theirs.send_multipart([b"and", b"back"])
    assert ours.recv_multipart() == [b"and", b"back"]


@pytest.mark.parametrize("theirs", ["REP", "ROUTER"])
@pytest.mark.parametrize("options", [{}, {"req_correlate": True}], ids=["plain", "correlate"])
def test_req(context: Context, peers: Peers, join: Join, theirs: str, options: dict[str, Any]) -> None:
    req, peer = make(context, "REQ", **options), peers(theirs)
    join(req, peer)
    with pytest.raises(WrongState, match="send first"):
        req.recv()
    for parts in ([b"one"], [b"one", b"two"]):
        req.send_multipart(parts)
        with pytest.raises(WrongState, match="receive the answer first") as raised:
            req.send(b"again")
        assert raised.value.errno == 156384763  # EFSM of zmq.h: ZMQ_HAUSNUMERO + 51
        asked = peer.recv_multipart()
        peer.send_multipart([*asked, b"!"])
        assert req.recv_multipart() == [*parts, b"!"]


def test_a_relaxed_req_takes_the_last_answer_only(context: Context, peers: Peers, join: Join) -> None:
    req, router = make(context, "REQ", req_relaxed=True), peers("ROUTER")
    join(req, router)
    req.send(b"1")
    first = router.recv_multipart()
    req.send(b"2")
    second = router.recv_multipart()
    for asked in (first, second):
        router.send_multipart([*asked[:-1], b"re " + asked[-1]])
    assert req.recv() == b"re 2"


def test_rep(context: Context, peers: Peers, join: Join) -> None:
    rep, req = make(context, "REP"), peers("REQ")
    join(rep, req)
    with pytest.raises(WrongState, match="receive first"):
        rep.send(b"nobody has asked")
    for parts in ([b"one"], [b"one", b"two"]):
        req.send_multipart(parts)
        assert rep.recv_multipart() == parts
        with pytest.raises(WrongState, match="send the answer first"):
            rep.recv()
        rep.send_multipart([b"re", *parts])
        assert req.recv_multipart() == [b"re", *parts]


def test_rep_answers_many_in_turn(context: Context, peers: Peers) -> None:
    rep = make(context, "REP")
    place = rep.bind("tcp://127.0.0.1:0")
    askers = [peers("REQ") for _ in range(3)]
    for number, asker in enumerate(askers):
        asker.connect(place)
        asker.send(b"%d" % number)
    for _ in askers:
        rep.send(b"re " + rep.recv())
    assert [asker.recv() for asker in askers] == [b"re 0", b"re 1", b"re 2"]


def test_an_answer_to_somebody_who_has_gone_is_dropped(context: Context, peers: Peers) -> None:
    rep = make(context, "REP")
    place = rep.bind("tcp://127.0.0.1:0")
    req, other = peers("REQ"), peers("REQ")
    req.connect(place)
    req.send(b"question")
    assert rep.recv() == b"question"
    req.close()
    until(lambda: not rep.statistics().peers)
    rep.send(b"answer")
    other.connect(place)
    other.send(b"next")
    assert rep.recv() == b"next"


def test_dealer(context: Context, peers: Peers, join: Join) -> None:
    dealer, router = make(context, "DEALER", identity=b"\xffme"), peers("ROUTER")
    join(dealer, router)
    dealer.send(b"hello")
    assert router.recv_multipart() == [b"\xffme", b"hello"]
    router.send_multipart([b"\xffme", b"", b"x"])
    assert dealer.recv_multipart() == [b"", b"x"]


def test_router(context: Context, peers: Peers, join: Join) -> None:
    router, dealer = make(context, "ROUTER"), peers("DEALER", routing_id=b"\xff\xfe")
    join(router, dealer)
    dealer.send_multipart([b"", b"question"])
    assert router.recv_multipart() == [b"\xff\xfe", b"", b"question"]
    dealer.send(b"one part")
    assert (router.recv(), router.recv()) == (b"\xff\xfe", b"one part")
    router.send_multipart([b"\xff\xfe", b"back"])
    assert dealer.recv() == b"back"
    router.send_multipart([b"nobody", b"is dropped"])
    assert router.statistics().dropped == 1
    router.options["router_mandatory"] = True
    with pytest.raises(Unreachable, match="no peer with the identity b'nobody'") as raised:
        router.send_multipart([b"nobody", b"is told"])
    assert raised.value.errno == errno.EHOSTUNREACH


def test_a_router_finds_a_req_by_what_it_has_received(context: Context, peers: Peers, join: Join) -> None:
    router, req = make(context, "ROUTER"), peers("REQ")
    join(router, req)
    req.send(b"question")
    identity, empty, body = router.recv_multipart()
    assert (identity[0], len(identity), empty, body) == (0, 5, b"", b"question")
    router.send_multipart([identity, b"", b"answer"])
    assert req.recv() == b"answer"


# ---------------------------------------------------------------------- limits


def test_sndhwm(context: Context) -> None:
    """Nobody is there, so what waits is what the mark allows."""
    push = context.socket("PUSH", sndhwm=10)
    with pytest.raises(Again, match="no peer"):
        push.send(b"there is no place", timeout=0)
    push.connect("tcp://127.0.0.1:9")
    for number in range(10):
        push.send(b"%d" % number, timeout=0)
    with pytest.raises(Again) as raised:
        push.send(b"too many", timeout=0)
    assert raised.value.errno == errno.EAGAIN
    assert isinstance(raised.value, WouldBlock)
    with pytest.raises(TimedOut):
        push.send(b"too many", timeout=0.01)
    push.options["sndtimeo"] = 0.01
    with pytest.raises(TimedOut):
        push.send(b"too many")
    (peer,) = push.statistics().peers
    assert (peer.peer, peer.waiting) == ("tcp://127.0.0.1:9", 10)


@pytest.mark.parametrize("high", [1000, 0])
@pytest.mark.parametrize("many", [False, True])
def test_a_mark_counts_messages_and_not_bytes(context: Context, high: int, many: bool) -> None:
    push = context.socket("PUSH", sndhwm=high, sndtimeo=0)
    push.connect("tcp://127.0.0.1:9")
    # One object, so it takes no memory.
    body = b"x" * 1_000_000
    for _ in range(200):
        push.send_many([body]) if many else push.send(body)
    if not high:
        for _ in range(5000):
            push.send(b"small")
    # Once the thread behind has seen all of them: it takes the messages only when a peer is there.
    (peer,) = push.statistics().peers
    assert peer.waiting == (200 if high else 5200)


def test_a_publisher_drops_and_counts(context: Context, peers: Peers) -> None:
    pub = context.socket("PUB", sndhwm=10)
    slow = peers("SUB", rcvhwm=1, rcvbuf=4096)
    slow.subscribe(b"")
    slow.connect(pub.bind("tcp://127.0.0.1:0"))
    pub.wait_for_subscribers(timeout=TIMEOUT)
    for _ in range(5000):
        pub.send(b"x" * 10_000)
    # Once the thread behind has looked at them: it chooses who gets what is sent.
    until(lambda: pub.statistics().peers[0].dropped > 0)
    assert slow.recv() == b"x" * 10_000


def test_conflate(context: Context, peers: Peers) -> None:
    pull = make(context, "PULL", conflate=True)
    push = peers("PUSH")
    push.connect(pull.bind("tcp://127.0.0.1:0"))
    for number in range(100):
        push.send(b"%d" % number)
    until(lambda: sum(each.received for each in pull.statistics().peers) >= 1 and _last(pull) == b"99")


def _last(pull: Socket) -> bytes:
    try:
        return pull.recv(timeout=0)
    except WouldBlock:
        return b""


def test_immediate(context: Context, peers: Peers) -> None:
    push, pull = make(context, "PUSH", immediate=True), peers("PULL")
    push.connect("tcp://127.0.0.1:9")
    with pytest.raises(Again):
        push.send(b"nobody is there", timeout=0)
    pull.bind("tcp://127.0.0.1:0")
    push.connect(pull.last_endpoint.decode())
    for number in range(4):
        push.send(b"%d" % number)
    assert [pull.recv() for _ in range(4)] == [b"0", b"1", b"2", b"3"]


# ---------------------------------------------------------------------- waiting


def test_disconnect_ends_all_connections_to_the_place(context: Context, peers: Peers) -> None:
    import zmq

    def connected_twice(push: Any, place: str) -> None:
        push.connect(place)
        push.connect(place)
        push.disconnect(place)

    theirs, ours, pull = peers("PUSH"), context.socket("PUSH", linger=0), peers("PULL")
    place = f"tcp://127.0.0.1:{pull.bind_to_random_port('tcp://127.0.0.1')}"
    connected_twice(theirs, place)
    with pytest.raises(zmq.ZMQError, match="No such file"):
        theirs.disconnect(place)
    connected_twice(ours, place)
    with pytest.raises(PlaceError, match="there is no place") as caught:
        ours.disconnect(place)
    assert caught.value.errno == errno.ENOENT


def test_poll(context: Context, peers: Peers) -> None:
    pulls = [make(context, "PULL") for _ in range(2)]
    pushes = [peers("PUSH") for _ in pulls]
    for pull, push in zip(pulls, pushes, strict=True):
        push.connect(pull.bind("tcp://127.0.0.1:0"))
    assert poll(pulls, timeout=0) == []
    assert not pulls[0].poll(0.01)
    pushes[1].send(b"here")
    assert poll(pulls, timeout=TIMEOUT) == [pulls[1]]
    assert pulls[1].recv(timeout=0) == b"here"
    assert poll(pulls, timeout=0) == []
    out = make(context, "PUSH")
    assert poll([], sending=[out], timeout=0) == []
    out.connect(pulls[0].last_endpoint)
    assert poll(pulls, sending=[out], timeout=TIMEOUT) == [out]


def test_the_descriptor(context: Context, peers: Peers) -> None:
    import select

    pull, push = make(context, "PULL"), peers("PUSH")
    push.connect(pull.bind("tcp://127.0.0.1:0"))
    for number in range(3):
        assert not pull.readable()
        descriptor = pull.fileno()
        push.send(b"%d" % number)
        until(lambda descriptor=descriptor: select.select([descriptor], [], [], 1)[0] and pull.readable())  # type: ignore[misc]
        assert pull.recv() == b"%d" % number


def test_a_socket_moves_between_threads(context: Context, peers: Peers) -> None:
    push, pull = make(context, "PUSH"), peers("PULL")
    pull.connect(push.bind("tcp://127.0.0.1:0"))
    for number in range(5):
        thread = threading.Thread(target=push.send, args=(b"%d" % number,))
        thread.start()
        thread.join()
    assert [pull.recv() for _ in range(5)] == [b"0", b"1", b"2", b"3", b"4"]


# ---------------------------------------------------------------------- the end


def test_what_was_sent_arrives_after_close(context: Context, peers: Peers) -> None:
    push, pull = make(context, "PUSH"), peers("PULL")
    pull.bind("tcp://127.0.0.1:0")
    push.connect(pull.last_endpoint.decode())
    for _ in range(1000):
        push.send(b"x" * 1000)
    push.close()
    assert push.closed
    for _ in range(1000):
        assert pull.recv() == b"x" * 1000
    with pytest.raises(SocketClosed):
        push.send(b"x" * 1000)
    until(lambda: not context.kernel.plan.engines and not context.kernel.plan.routes)


def test_closing_the_context_writes_what_waits(peers: Peers) -> None:
    pull = peers("PULL")
    pull.bind("tcp://127.0.0.1:0")
    with Context() as context:
        push = context.socket("PUSH")
        push.connect(pull.last_endpoint.decode())
        push.send_many([b"x"] * 500)
    assert [pull.recv() for _ in range(500)] == [b"x"] * 500
    assert context.closed
    for call in (lambda: push.send_many([b"y"]), lambda: context.socket("PULL")):
        with pytest.raises(KernelClosed):
            call()


@pytest.mark.parametrize("kind", ["PULL", "REP", "SUB", "PUSH"])
def test_closing_the_context_wakes_who_waits(kind: Any) -> None:
    context = Context()
    socket = context.socket(kind)
    socket.bind("tcp://127.0.0.1:0")
    said: list[BaseException] = []
    waits = threading.Event()

    def wait() -> None:
        waits.set()
        try:
            socket.send(b"") if kind == "PUSH" else socket.recv()
        except KernelError as error:
            said.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    waits.wait()
    context.close()
    thread.join(TIMEOUT)
    assert [type(error) for error in said] == [ContextClosed]


def test_a_peer_that_is_never_there_does_not_hold_the_end_up() -> None:
    with Context() as context:
        push = context.socket("PUSH", linger=0)
        push.connect("tcp://127.0.0.1:9")
        push.send(b"nobody will read this")
    assert push.options["linger"] == 0


# ---------------------------------------------------------------------- security


def test_plain(context: Context, peers: Peers) -> None:
    from zmq.auth.thread import ThreadAuthenticator

    door = ThreadAuthenticator(peers.context)
    door.start()
    try:
        door.configure_plain(domain="*", passwords={"anna": "secret"})
        pull = peers("PULL", plain_server=True)
        pull.bind("tcp://127.0.0.1:0")
        login = {"mechanism": "PLAIN", "username": "anna", "password": "secret"}
        push = make(context, "PUSH", engine=login)
        push.connect(pull.last_endpoint.decode())
        push.send(b"let in")
        assert pull.recv() == b"let in"
    finally:
        door.stop()


def test_options_that_the_engine_does_not_have(context: Context) -> None:
    push = context.socket("PUSH", engine={"mechanism": "ROT13"})
    for _ in range(2):
        with pytest.raises(PlaceError, match="cannot be made with its option 'engine'.*ROT13") as raised:
            push.connect("tcp://127.0.0.1:9")
        assert raised.value.errno == errno.EINVAL


# ---------------------------------------------------------------------- mistakes


def test_mistakes_say_what_to_do(context: Context) -> None:
    pull, push = context.socket("PULL"), context.socket("PUSH")
    place = pull.bind("tcp://127.0.0.1:0")
    for call, complaint in (
        (lambda: context.socket("PUSCH"), "no type of socket 'PUSCH'; there are: PUB"),  # type: ignore[arg-type]
        (lambda: context.socket("PUSH", hwm=1), "no option 'hwm'; there are: sndhwm"),
        (lambda: context.socket("PUSH", sndhwm="1"), "of the wrong type; Messages that may wait"),
        (lambda: context.socket("PUSH", sndhwm=-1), "0 is the least"),
        (lambda: context.socket("PUSH", identity=b"a"), "PUSH has no such option; REQ, DEALER, ROUTER have"),
        (lambda: pull.options.__setitem__("rcvhwm", 1), "before the first bind"),
        (lambda: push.recv(), "PUSH does not receive; PULL does"),
        (lambda: pull.send(b""), "PULL does not send"),
        (lambda: pull.subscribe(""), "PULL does not subscribe"),
        (lambda: pull.subscribers(), "PULL has no subscribers"),
        (lambda: context.socket("PULL").bind(place), "in use"),
        (lambda: push.connect("udp://x:1"), "begins with"),
        (lambda: push.unbind(place), "there is no place"),
        (lambda: context.socket("PUSH").disconnect(place), "no place yet"),
    ):
        with pytest.raises(KernelError) as raised:
            call()
        assert complaint in str(raised.value)
    with pytest.raises(TypeError, match="encode it first"):
        push.send("text")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least one part"):
        push.send_multipart([])
    assert issubclass(NotSupported, KernelError)
    assert issubclass(PlaceError, KernelError)


def test_each_option_of_libzmq_is_in_the_documentation_as_it_is() -> None:
    """Which are there, and which are refused."""
    from zmq.constants import SocketOption

    from plugins.apis.sockets.pyzmq_backend.options import BACKEND_OPTIONS

    page = PAGE.read_text()
    rows = page.partition("### Options of libzmq")[2].partition("## Who")[0].splitlines()
    told = {
        name: answer.strip().startswith("refused") and "TCP_ACCEPT_FILTER" not in names
        for row in rows
        if row.startswith("| `")
        for _, names, answer, _ in [row.split("|")]
        for name in re.findall("`([A-Z0-9_]+)`", names)
    }
    # The deprecated name of two others.
    refused = {each.name: int(each) not in BACKEND_OPTIONS for each in SocketOption if each.name != "HWM"}
    assert told == refused


def _row_of(option: Option) -> str:
    """Return an option as the documentation has it."""
    kind = "seconds" if isinstance(option.type, tuple) else option.type.__name__
    without = [each for each in TYPES if each not in option.only]
    only = ", ".join(option.only) if len(without) > len(option.only) else "all but " + ", ".join(without)
    cells = (f"`{option.name}`", kind, f"`{option.default!r}`", only if without else "all", option.when)
    return f"| {' | '.join((*cells, ', '.join(option.errnos), option.summary))} |"


def test_the_table_of_options_is_in_the_documentation_as_it_is() -> None:
    table = PAGE.read_text().partition("\n## Options\n")[2].partition("\n###")[0].splitlines()
    assert [row for row in table if row.startswith("| `")] == [_row_of(each) for each in OPTIONS.values()]


def test_an_option_that_cannot_be_set_is_an_error_with_a_number(context: Context) -> None:
    """Of the wrong type, too little, of another type of socket, and too late."""
    for option in OPTIONS.values():
        kind: Any = option.only[0]
        made = context.socket(kind)
        with pytest.raises(OptionError, match="wrong type") as raised:
            made.options[option.name] = object()
        assert errno.errorcode[raised.value.errno] == option.errnos[0]
        if option.least is not None:
            with pytest.raises(OptionError, match="is the least"):
                made.options[option.name] = -1
        other: Any = next((each for each in TYPES if each not in option.only), None)
        if other is not None:
            with pytest.raises(OptionError, match="has no such option"):
                context.socket(other, **{option.name: option.default})
        if option.when == "before the first place":
            made.options.fixed = True
            with pytest.raises(OptionError, match="before the first bind"):
                made.options[option.name] = option.default
            made.options.fixed = False
        made.close(0)


def test_options_decide_which_errors_calls_raise(context: Context) -> None:
    """Those that the table has behind EINVAL."""
    push = context.socket("PUSH", sndtimeo=0, immediate=True)
    pull = context.socket("PULL", rcvtimeo=0)
    router = context.socket("ROUTER", router_mandatory=True)
    req, pub = context.socket("REQ"), context.socket("XPUB", xpub_nodrop=True, sndhwm=1)
    push.connect("tcp://127.0.0.1:1")
    for each in (pull, router, req, pub):
        each.bind(f"inproc://{each.type}")
    sub = context.socket("SUB", rcvhwm=1)
    sub.subscribe("")
    sub.connect("inproc://XPUB")
    pub.wait_for_subscribers(timeout=TIMEOUT)

    tried: set[str] = set()

    def fill() -> None:
        while True:
            pub.send(b"x", timeout=0)

    for names, call in (
        (("sndtimeo", "immediate"), lambda: push.send(b"nobody is there")),
        (("rcvtimeo",), pull.recv),
        (("router_mandatory",), lambda: router.send_multipart([b"nobody", b"x"])),
        (("req_relaxed",), req.recv),
        (("xpub_nodrop", "sndhwm"), fill),
    ):
        for name in names:
            tried.add(name)
            (expected,) = OPTIONS[name].raised
            with pytest.raises(expected) as raised:
                call()
            assert raised.value.errno == expected.errno
    assert tried == {each.name for each in OPTIONS.values() if each.raised}


def test_the_table_of_options() -> None:
    for option in OPTIONS.values():
        assert option.summary.endswith(".")
        assert option.default is None or isinstance(option.default, option.type)
