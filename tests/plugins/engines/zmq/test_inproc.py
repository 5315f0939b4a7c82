"""Sockets of one kernel joined with ``inproc``: what is confirmed when messages are left out on their way."""

from __future__ import annotations

from typing import Any

import pytest

from kernel.contracts.errors import TimedOut
from kernel.testing.fixtures import KernelFactory, kernel_factory
from kernel.topology.plan import EnginePlan
from tests.plans import route

__all__ = ["kernel_factory"]

TIMEOUT = 30.0
PLACE = "inproc://place"


def socket_of(name: str, kind: str, **options: Any) -> EnginePlan:
    return EnginePlan(name=name, kind="zmq", options={"type": kind, **options})


def test_what_nobody_has_subscribed_to_is_confirmed_with_the_rest(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(
        EnginePlan(name="app", kind="native"),
        EnginePlan(name="reader", kind="native"),
        socket_of("pub", "PUB", bind=[PLACE]),
        socket_of("sub", "SUB", connect=[PLACE], subscribe=["a"]),
        route("app", "pub", confirm=True),
        route("sub", "reader", confirm=True),
    )
    with kernel.open("app") as app, kernel.open("reader") as reader:
        for number in range(10):
            app.send(b"%d" % number, key="ab"[number % 2])
        # The last one is for nobody, so it must not wait for a message behind it.
        received = [bytes(reader.receive(timeout=TIMEOUT)) for _ in range(5)]
        reader.confirm()
        app.wait_confirmed(TIMEOUT)
        # All are for nobody.
        app.send_many([b"x"] * 10, key="b")
        app.wait_confirmed(TIMEOUT)
    assert received == [b"0", b"2", b"4", b"6", b"8"]


def test_what_was_not_dealt_with_is_not_confirmed_by_what_is_left_out(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(
        EnginePlan(name="app", kind="native"),
        EnginePlan(name="reader", kind="native"),
        socket_of("push", "PUSH", bind=[PLACE], any_inproc_peer=True),
        # A GATHER takes messages of one part only.
        socket_of("gather", "GATHER", connect=[PLACE], any_inproc_peer=True),
        route("app", "push", confirm=True),
        route("gather", "reader", confirm=True),
    )
    with kernel.open("app") as app, kernel.open("reader") as reader:
        app.send_parts([b"two", b"parts"])
        app.send(b"one")
        app.send_parts([b"two", b"parts"])
        assert bytes(reader.receive(timeout=TIMEOUT)) == b"one"
        with pytest.raises(TimedOut):
            app.wait_confirmed(0.05)
        reader.confirm()
        app.wait_confirmed(TIMEOUT)
        app.send_parts([b"two", b"parts"])
        app.wait_confirmed(TIMEOUT)
