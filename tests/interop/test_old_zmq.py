"""Each pattern with old programs, which bind or connect: JeroMQ 0.3 speaks ZMTP 2.0, and libzmq 2.1 speaks 1.0.

JeroMQ 0.6 of later Debians, which speaks 3.0, has to do as well.

Their sides are java/OldZmq.java and libzmq2_peer.py.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernel.sockets import Context, Socket
from tests.interop.until import until
from tests.peers import JEROMQ, LIBZMQ_2

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parent / "java" / "OldZmq.java"
JEROMQ_SPEAKS = "2.0" if list(Path(JEROMQ).parent.glob("jeromq-0.3.*")) else "3.0"
PROGRAMS = {
    "1.0": [sys.executable, "-m", "tests.interop.libzmq2_peer", LIBZMQ_2],
    JEROMQ_SPEAKS: ["java", "-cp", JEROMQ, str(PROGRAM)],
}
TIMEOUT = 30.0
ROOT = Path(__file__).parents[2]
LARGE = b"x" * 300_000
TEXTS = (b"one", b"two", LARGE)

Open = Callable[..., Socket]


def _request(open_socket: Open) -> None:
    rep = open_socket("REP")
    for text in TEXTS:
        assert rep.recv() == text
        rep.send(b"re: " + text)


def _reply(open_socket: Open) -> None:
    req = open_socket("REQ")
    for text in TEXTS:
        req.send(text)
        assert req.recv() == b"re: " + text


def _publish(open_socket: Open, say: Callable[[str], None] | None) -> None:
    sub = open_socket("SUB", lambda socket: socket.subscribe("tea"))
    if say is not None:
        assert sub.recv_multipart() == [b"teatime", b"0"]
        say("there")
        while (message := sub.recv_multipart()) == [b"teatime", b"0"]:
            pass
        assert message == [b"tea", b"2"]
        assert sub.recv_multipart() == [b"teapot", LARGE]
        return
    assert [sub.recv_multipart() for _ in range(2)] == [[b"tea", b"2"], [b"teapot", LARGE]]


def _subscribe(open_socket: Open, topic: str) -> None:
    pub = open_socket("PUB")
    pub.wait_for_subscribers(topic=topic, timeout=TIMEOUT)
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
    assert pair.recv_multipart() == [b"a", b"", LARGE]
    pair.send_multipart([b"b", b"", LARGE])


CHECKS: tuple[Callable[..., None], ...] = (
    _request,
    _reply,
    _publish,
    _subscribe,
    _push,
    _pull,
    _dealer,
    _router,
    _pair,
)
"""In the order of java/OldZmq.java, named after what that side is."""


@pytest.fixture
def context() -> Iterator[Context]:
    with Context() as made:
        yield made


@pytest.mark.peer("jeromq")
@pytest.mark.parametrize("role", ["bind", "connect"])
def test_each_pattern_with_jeromq(context: Context, role: str) -> None:
    _check_all(context, role, JEROMQ_SPEAKS)


@pytest.mark.peer("libzmq 2")
@pytest.mark.parametrize("role", ["bind", "connect"])
def test_each_pattern_with_libzmq_2_1(context: Context, role: str) -> None:
    _check_all(context, role, "1.0")


def _check_all(context: Context, role: str, version: str) -> None:
    command = [*PROGRAMS[version], role]
    pipe: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    opened: list[Socket] = []
    with subprocess.Popen(command, text=True, cwd=ROOT, **pipe) as program:

        def say(line: str) -> None:
            program.stdin.write(line + "\n")
            program.stdin.flush()

        def open_socket(
            kind: Any, prepare: Callable[[Socket], Any] = lambda _: None, **options: Any
        ) -> Socket:
            socket = context.socket(kind, rcvtimeo=TIMEOUT, sndtimeo=TIMEOUT, **options)
            opened.append(socket)
            prepare(socket)
            if role == "bind":
                socket.connect(program.stdout.readline().strip())
            else:
                say(socket.bind("tcp://127.0.0.1:0"))
            until(lambda: {row["version"] for row in context.kernel.inspect("connections").rows} == {version})
            return socket

        try:
            # Subscribers of 1.0 do not tell what they have subscribed to, and get everything.
            also: dict[Any, Any] = {
                _publish: say if version == "1.0" else None,
                _subscribe: "" if version == "1.0" else "tea",
            }
            for check in CHECKS:
                check(open_socket, *([also[check]] if check in also else []))
                # The next one may bind at the same port, and this one is not to connect to it.
                opened.pop().close()
                say("done")
            assert program.wait(TIMEOUT) == 0, program.stderr.read()
        finally:
            program.kill()
