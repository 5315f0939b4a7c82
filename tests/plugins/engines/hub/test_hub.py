"""The hub: everybody hears everybody else, nobody themselves; nothing is confirmed that somebody has not."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

import kernel
from kernel.testing.fixtures import KernelFactory
from kernel.topology.plan import EnginePlan, RoutePlan
from kernel.topology.system import Kernel
from plugins.apis.native.channel import Channel

HUB = (
    EnginePlan(
        name="clients", kind="stream", options={"mode": "listen", "address": "backend+tcp://127.0.0.1:0"}
    ),
    EnginePlan(name="hub", kind="hub"),
    RoutePlan(source="clients", targets=("hub",)),
    RoutePlan(source="hub", targets=("clients",), router="others"),
)


def clients(stack: ExitStack, through: Kernel, count: int) -> list[Channel]:
    """Connect clients, each of which has heard of the last one."""
    address = through.address_of("clients")
    channels = [stack.enter_context(kernel.connect(address)) for _ in range(count)]
    # The last one speaks when it is connected, and whoever hears it is connected as well.
    channels[-1].send(b"here")
    for channel in channels[:-1]:
        assert channel.receive(timeout=60) == b"here"
    return channels


def test_everybody_hears_everybody_else_and_nobody_themselves(kernel_factory: KernelFactory) -> None:
    with ExitStack() as stack:
        channels = clients(stack, kernel_factory(*HUB), 4)
        for number, channel in enumerate(channels):
            channel.send_many([b"%d" % number] * 10, key=f"from.{number}")
        for number, channel in enumerate(channels):
            heard: dict[str | None, int] = {}
            for _ in range(30):
                message = channel.receive_message(timeout=60)
                assert bytes(message) == message.key.removeprefix("from.").encode()
                heard[message.key] = heard.get(message.key, 0) + 1
            assert heard == {f"from.{other}": 10 for other in range(4) if other != number}
            assert not channel.has_something()


def test_all_hear_the_messages_of_several_senders_in_the_same_order(kernel_factory: KernelFactory) -> None:
    with ExitStack() as stack:
        first, second, *hearers = clients(stack, kernel_factory(*HUB), 5)
        for number in range(200):
            (first, second)[number % 2].send(b"%d" % number)
        orders = [[bytes(hearer.receive(timeout=60)) for _ in range(200)] for hearer in hearers]
        assert orders[0] == orders[1] == orders[2]
        assert sorted(map(int, orders[0])) == list(range(200))


def test_the_number_of_pipes_is_linear(kernel_factory: KernelFactory) -> None:
    through = kernel_factory(*HUB)
    with ExitStack() as stack:
        clients(stack, through, 10)
        assert len(through.statistics().pipes) == 2 * 10


def test_a_message_is_confirmed_when_all_others_have_confirmed_it(kernel_factory: KernelFactory) -> None:
    """The readers are channels with names of their own, so that one of them can hold its answer back."""
    names = ("reader-1", "reader-2")
    through = kernel_factory(
        EnginePlan(name="writer", kind="native"),
        EnginePlan(name="hub", kind="hub"),
        *(EnginePlan(name=name, kind="native", options={"auto_confirm": False}) for name in names),
        RoutePlan(source="writer", targets=("hub",), confirm=True),
        RoutePlan(source="hub", targets=("writer", *names), router="others", confirm=True),
    )
    with ExitStack() as stack:
        first, second = (stack.enter_context(through.open(name)) for name in names)
        writer = stack.enter_context(through.open("writer"))
        writer.send_many([b"1", b"2", b"3"])
        for reader in (first, second):
            assert [reader.receive(timeout=60) for _ in range(3)] == [b"1", b"2", b"3"]
        first.confirm()
        second.confirm()
        writer.wait_confirmed(timeout=60)
        writer.send(b"4")
        for reader in (first, second):
            assert reader.receive(timeout=60) == b"4"
        first.confirm()
        with pytest.raises(kernel.TimedOut):
            writer.wait_confirmed(timeout=0.05)
        second.confirm()
        writer.wait_confirmed(timeout=60)
        assert not writer.has_something()
