"""Queues that the server names: their bindings and consumers follow them to the next name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kernel.testing.fixtures import KernelFactory
from kernel.topology.system import Kernel
from plugins.engines.amqp_client.options import AmqpClientOptions
from plugins.protocols.amqp091.methods import basic, queue
from tests.plugins.engines.amqp.raw_client import RawClient
from tests.plugins.engines.amqp_client.conftest import TIMEOUT, Client, broker_plan
from tests.plugins.engines.amqp_client.in_memory import InMemory

OWN: dict[str, Any] = {
    "queues": ({"name": "", "exclusive": True, "durable": False},),
    "bindings": ({"exchange": "amq.topic", "queue": "", "key": "news.#"},),
    "consume": ({"queue": "", "prefetch": 10},),
}


def _queues(broker: Kernel) -> list[str]:
    return [row["name"] for row in broker.inspect("queues", TIMEOUT).rows]


def test_a_new_connection_has_a_new_queue_with_the_old_bindings(
    kernel_factory: KernelFactory, connect: Callable[..., Client], broker: Kernel
) -> None:
    client = connect(**OWN)
    into = client.kernel.open("in")
    (first,) = [name for name in _queues(broker) if name.startswith("amq.gen-")]
    address = broker.address_of("broker")
    broker.remove_engine("broker")
    client.events.wait("disconnected")
    broker.add_engine(broker_plan(address))
    client.events.wait("connected", times=2)
    with RawClient(int(address.rpartition(":")[2])) as raw:
        raw.publish(b"hello", "news.today", "amq.topic")
        assert bytes(into.receive(TIMEOUT)) == b"hello"
    (second,) = _queues(broker)
    assert second.startswith("amq.gen-")
    assert second != first


def test_a_queue_that_is_still_there_is_not_declared_twice() -> None:
    world = InMemory(**OWN, reconnect={"first": 1.0, "jitter": 0.0})
    world.close(3, 541)  # the consumer's channel alone
    world.host.run(until=2.0)
    declared = [method.queue for method in world.methods if isinstance(method, queue.Declare)]
    bound = [method.queue for method in world.methods if isinstance(method, queue.Bind)]
    consumed = [method.queue for method in world.methods if isinstance(method, basic.Consume)]
    assert (declared, bound, consumed) == ([""], ["", "q"], ["q", "q"])  # "q": what the server called it


@pytest.mark.parametrize("gone", ["cancelled", "not found"])
def test_a_queue_that_has_gone_is_declared_anew(gone: str) -> None:
    world = InMemory(**OWN, reconnect={"first": 1.0, "jitter": 0.0})
    if gone == "cancelled":
        world.say(3, basic.Cancel(consumer_tag="client", nowait=True))
    else:
        world.close(3, 404)
    world.host.run(until=2.0)
    assert [method.queue for method in world.methods if isinstance(method, queue.Declare)] == ["", ""]
    assert sum(isinstance(method, basic.Consume) for method in world.methods) == 2


@pytest.mark.parametrize(
    "options,said",
    [
        ({"queues": [{"name": ""}]}, "must be exclusive or auto_delete"),
        ({"queues": [{"name": "", "exclusive": True}] * 2}, "only one queue can"),
        ({"consume": [{"queue": ""}]}, "names no queue"),
        ({"bindings": [{"exchange": "amq.topic"}]}, "names no queue"),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=said):
        msgspec.convert(options, AmqpClientOptions)
