"""One way, 100 B, every message under a key that was never there before; pyzmq sends the key as a part."""

from __future__ import annotations

import time
from multiprocessing.connection import Connection

from benchmarks import kernels
from benchmarks.peers import pyzmq_sockets
from benchmarks.processes import Child, one_way
from benchmarks.scenario import Figures, Row, Scenario, Side

SIZE = 100
AIM = 1.5
"""Microseconds of processor time a message, on each side."""


def _receive(link: Connection, count: int) -> None:
    """Receive all that has come in one call."""
    with kernels.listening() as kernel:
        receive_many = kernel.open("app").receive_many
        link.send(f"backend+tcp://{kernel.address_of('link')}")
        first = received = len(receive_many())
        start, used = time.perf_counter(), time.process_time()
        while received < count:
            received += len(receive_many())
        seconds, used = time.perf_counter() - start, time.process_time() - used
        link.send(((received - first) / seconds, used / count * 1e6))
        link.recv()


def _send(link: Connection, address: str, count: int) -> None:
    """Send with one call a message."""
    with kernels.dialling(address) as kernel:
        send = kernel.open("app").send
        body = b"x" * SIZE
        used = time.process_time()
        for number in range(count):
            send(body, key=f"order.{number}")
        link.recv()
        link.send((time.process_time() - used) / count * 1e6)


def _ours(scale: float) -> Figures:
    count = int(500_000 * scale)
    with Child(_receive, count) as receiving:
        place = receiving.hear()
        with Child(_send, place, count) as sending:
            rate, receiver = receiving.hear(sending)
            sending.say(None)
            return {"rate": rate, "receiver": receiver, "sender": sending.hear()}


def _pyzmq(scale: float) -> Figures:
    return one_way(pyzmq_sockets.receive_keyed, pyzmq_sockets.send_keyed, int(500_000 * scale), SIZE)


def _aim(scale: float) -> Figures:
    return {"sender": AIM, "receiver": AIM}


def _cost(side: str) -> Row:
    return Row(
        name=f"oneway_keys_{side}",
        what=f"one way, {SIZE} B, every message under another key: processor time a message, {side}",
        figure=side,
        unit="µs",
        bar="<= 1.0",
        ours="kernel",
        peers=("the aim: 1.5 µs",),
    )


SCENARIO = Scenario(
    name="oneway_keys",
    sides=(Side("kernel", _ours), Side("pyzmq", _pyzmq), Side("the aim: 1.5 µs", _aim)),
    rows=(
        Row(
            name="oneway_keys",
            what=f"one way, {SIZE} B, every message under another key, one call a message sent",
            figure="rate",
            unit="msg/s",
            bar=">= 1.0",
            ours="kernel",
            peers=("pyzmq",),
        ),
        _cost("sender"),
        _cost("receiver"),
    ),
)
