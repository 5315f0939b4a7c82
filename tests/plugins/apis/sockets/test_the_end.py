"""The end: nothing hangs, and nothing is left."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest

from kernel.contracts.errors import KernelError
from kernel.sockets import Context, Socket
from kernel.testing.leaks import Leaks
from plugins.apis.sockets.options import TypeName
from tests.seeds import many

TIMEOUT = 30.0

UNCLOSED = """
from threading import Thread
from kernel.sockets import Context
context = Context()
push = context.socket("PUSH", linger=None)
push.connect("ipc:///nowhere/at-all")
push.send(b"nobody will read this")
pull = context.socket("PULL")
pull.bind("inproc://here")
Thread(target=pull.recv, daemon=True).start()
print("at the end")
"""


@pytest.mark.slow
def test_a_program_that_closes_nothing_ends() -> None:
    done = subprocess.run([sys.executable, "-c", UNCLOSED], capture_output=True, timeout=TIMEOUT, check=True)
    assert (done.stdout, done.stderr) == (b"at the end\n", b"")


@pytest.mark.parametrize("kind", ["PUSH", "PAIR", "DEALER", "REQ"])
def test_who_has_sent_nothing_does_not_linger(kind: TypeName) -> None:
    context = Context()
    with context.socket(kind, linger=None) as socket:
        socket.connect("tcp://127.0.0.1:1")
    context.close(linger=None)


def _with_traffic(place: str, linger: float) -> None:
    """Close a context while its threads send, receive and wait."""
    context = Context()
    push, pull, rep, req = (context.socket(kind) for kind in ("PUSH", "PULL", "REP", "REQ"))
    push.connect(pull.bind(place))
    req.connect(rep.bind(place + "2" if place.startswith("inproc") else place))
    req.send(b"a question that is not answered")
    flowing = threading.Event()

    def send(socket: Socket) -> None:
        while True:
            socket.send(b"x" * 100)

    def receive(socket: Socket) -> None:
        while True:
            socket.recv()
            flowing.set()

    ended: list[type] = []

    def until_closed(work: Any, socket: Socket) -> None:
        try:
            work(socket)
        except KernelError as error:
            ended.append(type(error))

    threads = [
        threading.Thread(target=until_closed, args=each)
        for each in ((send, push), (receive, pull), (receive, req))
    ]
    for thread in threads:
        thread.start()
    assert flowing.wait(TIMEOUT)
    context.close(linger=linger)
    for thread in threads:
        thread.join(TIMEOUT)
        assert not thread.is_alive()
    assert [each.__name__ for each in ended] == ["ContextClosed"] * 3


@pytest.mark.slow
@pytest.mark.parametrize("place", ["tcp://127.0.0.1:0", "inproc://place"])
@pytest.mark.parametrize("linger", [0.0, 0.05])
def test_contexts_that_are_closed_under_traffic(place: str, linger: float) -> None:
    _with_traffic(place, linger)
    leaks = Leaks()
    # 300 of all four kinds in CI, and 10,000 with KERNEL_SEEDS=34.
    for _ in many(0, 75):
        _with_traffic(place, linger)
    assert leaks.found() == []
