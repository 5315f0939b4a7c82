"""Each pattern with zeromq.js in Node, which binds or connects, over TCP and WebSocket; its side is in node/zeromq.js."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kernel.sockets import Context, Socket, Unreachable
from tests.interop.until import until

pytestmark = pytest.mark.peer("node-zeromq")

PROGRAM = Path(__file__).parent / "node" / "zeromq.js"
TIMEOUT = 30.0
LARGE = b"x" * 300_000

Open = Callable[..., Socket]


def _request(open_socket: Open) -> None:
    rep = open_socket("REP")
    for text in (b"one", b"two", LARGE):
        assert rep.recv() == text
        rep.send(b"re: " + text)


def _reply(open_socket: Open) -> None:
    req = open_socket("REQ")
    for text in (b"one", b"two", LARGE):
        req.send(text)
        assert req.recv() == b"re: " + text


def _publish(open_socket: Open) -> None:
    sub = open_socket("SUB", lambda socket: socket.subscribe("tea"))
    assert [sub.recv_multipart() for _ in range(2)] == [[b"tea", b"2"], [b"teapot", LARGE]]


def _subscribe(open_socket: Open) -> None:
    pub = open_socket("PUB")
    pub.wait_for_subscribers(topic="tea", timeout=TIMEOUT)
    for key, body in ((b"coffee", b"1"), (b"tea", b"2"), (b"teapot", LARGE)):
        pub.send_multipart([key, body])


def _push(open_socket: Open) -> None:
    pull = open_socket("PULL")
    assert [pull.recv() for _ in range(1000)] == [b"%d" % n for n in range(1000)]
    assert pull.recv_multipart() == [b"a", b"", LARGE]


def _pull(open_socket: Open) -> None:
    push = open_socket("PUSH")
    push.send_many([b"%d" % n for n in range(1000)])
    push.send_multipart([b"a", b"", LARGE])


def _dealer(open_socket: Open) -> None:
    router = open_socket("ROUTER")
    assert router.recv_multipart() == [b"anna", b"", b"question"]
    router.send_multipart([b"anna", b"", b"answer"])


def _router(open_socket: Open) -> None:
    dealer = open_socket("DEALER", identity=b"berta")
    dealer.send_multipart([b"", b"question"])
    assert dealer.recv_multipart() == [b"", b"answer"]


def _pair(open_socket: Open) -> None:
    pair = open_socket("PAIR")
    assert [pair.recv() for _ in range(1000)] == [b"%d" % n for n in range(1000)]
    pair.send_many([b"re: %d" % n for n in range(1000)])
    assert pair.recv_multipart() == [b"a", b"", LARGE]
    pair.send_multipart([b"a", b"", LARGE])


def _xpublish(open_socket: Open) -> None:
    xsub = open_socket("XSUB", lambda socket: socket.subscribe("tea"))
    assert [xsub.recv_multipart() for _ in range(2)] == [[b"tea", b"2"], [b"teapot", LARGE]]
    xsub.unsubscribe("tea")
    xsub.subscribe("coffee")
    assert xsub.recv_multipart() == [b"coffee", b"4"]
    xsub.send(b"\2upwards")


def _xsubscribe(open_socket: Open) -> None:
    xpub = open_socket("XPUB")
    assert xpub.recv() == b"\1tea"
    for key, body in ((b"coffee", b"1"), (b"tea", b"2"), (b"teapot", LARGE)):
        xpub.send_multipart([key, body])
    assert [xpub.recv() for _ in range(2)] == [b"\0tea", b"\1coffee"]
    for key, body in ((b"tea", b"3"), (b"coffee", b"4")):
        xpub.send_multipart([key, body])
    assert xpub.recv() == b"\2upwards"


def _server(open_socket: Open) -> None:
    client = open_socket("CLIENT")
    for text in (b"one", b"two", LARGE):
        client.send(text)
        assert client.recv() == b"re: " + text


def _client(open_socket: Open) -> None:
    server = open_socket("SERVER")
    peers = set()
    for text in (b"one", b"two", LARGE):
        peer, body = server.recv_from()
        peers.add(peer)
        assert body == text
        server.send_to(peer, b"re: " + body)
    assert len(peers) == 1
    with pytest.raises(Unreachable, match="no peer with the routing id"):
        server.send_to(1, b"nobody")


def _radio(open_socket: Open, say: Callable[[str], None]) -> None:
    dish = open_socket("DISH", lambda socket: (socket.join("weather"), socket.join("")))
    dish.join("café")
    say("joined")
    assert dish.recv_group() == (b"weather", b"sunny")
    say("received")
    rest = []
    while len(rest) < 3:
        message = dish.recv_group()
        if message[1] != b"sunny":
            rest.append(message)
    assert rest == [(b"weather", LARGE), (b"", b"2"), ("café".encode(), b"3")]


def _dish(open_socket: Open, listen: Callable[[], str]) -> None:
    radio = open_socket("RADIO")
    groups = ("weather", "", "café")
    for group in groups:
        radio.wait_for_subscribers(topic=group, timeout=TIMEOUT)
    assert radio.subscribers("we") == 0
    for group, body in (("we", b"0"), ("weather.wien", b"1"), ("weather", LARGE), ("", b"2"), ("café", b"3")):
        radio.send_group(group, body)
    assert listen() == "left"
    until(lambda: not radio.subscribers("weather") and not radio.subscribers("café"))
    for group in groups[::-1]:
        radio.send_group(group, b"last")


def _scatter(open_socket: Open) -> None:
    gather = open_socket("GATHER")
    assert [gather.recv() for _ in range(1001)] == [*(b"%d" % n for n in range(1000)), LARGE]


def _gather(open_socket: Open) -> None:
    scatter = open_socket("SCATTER")
    scatter.send_many([b"%d" % n for n in range(1000)])
    scatter.send(LARGE)


DRAFTS = (_server, _client, _radio, _dish, _scatter, _gather)
CHECKS = (
    _request,
    _reply,
    _publish,
    _subscribe,
    _push,
    _pull,
    _dealer,
    _router,
    _pair,
    _xpublish,
    _xsubscribe,
)
"""In the order of node/zeromq.js, named after what that side is."""


@pytest.fixture
def context() -> Iterator[Context]:
    with Context() as made:
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("place", ["tcp://127.0.0.1:0", "ws://127.0.0.1:0/feed"], ids=["tcp", "ws"])
@pytest.mark.parametrize("role", ["bind", "connect"])
def test_each_pattern(context: Context, role: str, place: str) -> None:
    _check_all(context, role, place, CHECKS)


@pytest.mark.slow
@pytest.mark.parametrize("role", ["bind", "connect"])
def test_each_type_that_is_a_draft(context: Context, role: str) -> None:
    _check_all(context, role, "tcp://127.0.0.1:0", DRAFTS, "drafts")


def _no_wss(_: Open) -> None:
    """Nothing on our side."""


@pytest.mark.slow
def test_its_libzmq_was_built_without_wss(context: Context) -> None:
    """So nobody but a kernel is at the other end of ``wss``.  If this fails, zeromq.js has it, and is a peer for it."""
    _check_all(context, "bind", "", [_no_wss], "wss")


def _check_all(
    context: Context, role: str, place: str, checks: Sequence[Callable[..., None]], *more: str
) -> None:
    command = ["node", "--no-warnings", str(PROGRAM), role, place, *more]
    pipe: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, text=True, **pipe) as program:

        def say(line: str) -> None:
            program.stdin.write(line + "\n")
            program.stdin.flush()

        def open_socket(
            kind: Any, prepare: Callable[[Socket], Any] = lambda _: None, **options: Any
        ) -> Socket:
            socket = context.socket(kind, rcvtimeo=TIMEOUT, sndtimeo=TIMEOUT, **options)
            prepare(socket)
            if role == "bind":
                socket.connect(program.stdout.readline().strip())
            else:
                say(socket.bind(place))
            return socket

        try:
            also: dict[Any, Any] = {_radio: say, _dish: lambda: program.stdout.readline().strip()}
            for check in checks:
                check(open_socket, *([also[check]] if check in also else []))
                say("done")
            assert program.wait(TIMEOUT) == 0, program.stderr.read()
        finally:
            program.kill()
