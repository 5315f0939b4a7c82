"""A channel whose thread helps: it sends and waits in turn, and stops doing so, without loss or change of order."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from kernel import EnginePlan, Kernel, Plan, RoutePlan, ThreadPlan
from kernel.sockets import Context

LIMIT = 60.0


def plan(mode: str, address: str) -> Plan:
    return Plan(
        threads=(ThreadPlan(name="io", options={"helpers": True}),),
        engines=(
            EnginePlan(name="link", kind="stream", options={"address": address, "mode": mode}),
            EnginePlan(name="app", kind="native"),
        ),
        routes=(
            RoutePlan(source="app", targets=("link",)),
            RoutePlan(source="link", targets=("app",), router="fan-out"),
        ),
    )


@pytest.fixture
def kernels() -> Iterator[tuple[Kernel, Kernel]]:
    with Kernel(plan("listen", "backend+tcp://127.0.0.1:0")) as one:
        one.wait_running()
        with Kernel(plan("dial", f"backend+tcp://{one.address_of('link')}")) as other:
            other.wait_running()
            yield one, other


def test_turns_and_bursts_keep_their_order(kernels: tuple[Kernel, Kernel]) -> None:
    one, other = kernels
    bursts = [1] * 20 + [50] + [1] * 20 + [2, 1, 1, 1, 1, 1, 7]

    def echo() -> None:
        with one.open("app") as channel:
            for _ in range(sum(bursts)):
                channel.send(channel.receive(LIMIT))
            # Until the other side has everything.
            assert channel.receive(LIMIT) == b"end"

    echoing = threading.Thread(target=echo)
    echoing.start()
    with other.open("app") as channel:
        number = 0
        for burst in bursts:
            for each in range(number, number + burst):
                channel.send(b"%d" % each)
            for each in range(number, number + burst):
                assert channel.receive(LIMIT) == b"%d" % each
            number += burst
        channel.send(b"end")
        echoing.join(LIMIT)
    assert not echoing.is_alive()


def test_sockets_that_help_ask_and_answer() -> None:
    with Context(helpers=True) as mine, Context(helpers=True) as theirs:
        rep, req = theirs.socket("REP"), mine.socket("REQ")
        req.connect(rep.bind("tcp://127.0.0.1:0"))

        def echo() -> None:
            for _ in range(300):
                rep.send(rep.recv(timeout=LIMIT))

        echoing = threading.Thread(target=echo)
        echoing.start()
        for number in range(300):
            req.send(b"%d" % number)
            assert req.recv(timeout=LIMIT) == b"%d" % number
        echoing.join()


def test_a_socket_that_helps_is_woken_by_the_end_of_its_context() -> None:
    from kernel.sockets import ContextClosed

    context = Context(helpers=True)
    with Context() as theirs:
        rep, req = theirs.socket("REP"), context.socket("REQ")
        req.connect(rep.bind("tcp://127.0.0.1:0"))
        for _ in range(10):
            req.send(b"x")
            rep.send(rep.recv(timeout=LIMIT))
            req.recv(timeout=LIMIT)
        req.send(b"y")
        closing = threading.Timer(0, context.close, (0,))
        closing.start()
        with pytest.raises(ContextClosed):
            req.recv(timeout=LIMIT)
        closing.join()
