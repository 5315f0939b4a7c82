"""Front ends: one broker, several listeners."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pika
import pytest

from kernel.contracts.errors import KernelError
from kernel.contracts.kinds import EngineSetup
from kernel.plugins import PluginRegistry
from kernel.topology.plan import EnginePlan, Plan
from kernel.topology.system import Kernel
from plugins.engines.amqp.options import AmqpListenerOptions, AmqpOptions
from plugins.engines.broker.contract import BrokerOptions
from plugins.engines.broker.host.engine import BrokerEngine
from plugins.engines.broker.host.options import ManyListenersOptions, listener_address

LISTENER = {"protocol": "amqp", "address": "tcp://127.0.0.1:0"}


def make_kernel(*listeners: dict[str, Any], **options: Any) -> Kernel:
    plan = EnginePlan(name="broker", kind="broker", options={"listeners": list(listeners), **options})
    return Kernel(Plan(engines=(plan,)))


@pytest.fixture
def two_listeners() -> Iterator[Kernel]:
    with make_kernel(LISTENER, {**LISTENER, "max_connections": 1}) as kernel:
        kernel.wait_running()
        yield kernel


def ports(kernel: Kernel) -> list[int]:
    return [int(address.rpartition(":")[2]) for address in kernel.address_of("broker").split(", ")]


def connect(port: int) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))


def test_clients_of_all_listeners_meet_in_one_broker(two_listeners: Kernel) -> None:
    first, second = ports(two_listeners)
    with connect(first) as publisher, connect(second) as consumer:
        channel = consumer.channel()
        channel.queue_declare("q")
        publisher.channel().basic_publish("", "q", b"over the other listener")
        *_, body = next(iter(channel.consume("q", inactivity_timeout=60)))
        assert body == b"over the other listener"
        assert len(two_listeners.inspect("connections").rows) == 2


def test_each_listener_counts_its_own_connections(two_listeners: Kernel) -> None:
    first, second = ports(two_listeners)
    with connect(first), connect(first), connect(second), pytest.raises(pika.exceptions.AMQPConnectionError):
        connect(second)
    (engine,) = two_listeners.statistics().engines
    assert (engine.counters["accepted"], engine.counters["refused"]) == (3, 1)


def test_a_broker_may_have_no_listener() -> None:
    with make_kernel() as kernel:
        kernel.wait_running()
        assert kernel.address_of("broker") == ""


@pytest.mark.parametrize(
    "listener, complaint",
    [
        (
            {"protocol": "smtp", "address": "127.0.0.1:0"},
            "listeners\\[0\\] has protocol 'smtp'; installed front ends: ",
        ),
        ({"protocol": "amqp", "address": "127.0.0.1"}, "listeners\\[0\\]: address: .* is no host:port"),
        ({"protocol": "amqp", "address": "127.0.0.1:0", "x": 1}, "listeners\\[0\\]: .*unknown field `x`"),
        (
            {"protocol": "amqp", "address": "127.0.0.1:0", "anonymous": "x"},
            "listeners\\[0\\]: anonymous = 'x' is none of the users",
        ),
    ],
)
def test_a_listener_that_cannot_be_made_is_named(listener: dict[str, Any], complaint: str) -> None:
    registry = PluginRegistry.load()
    setup = EngineSetup(
        name="broker",
        options=ManyListenersOptions(listeners=(listener,)),
        make_protocol=lambda name, options, side: None,
        kinds=registry.kinds,
    )
    with pytest.raises(KernelError, match=complaint):
        registry.kind("engines", "broker").create(setup)


def test_the_short_form_has_the_options_of_its_listener() -> None:
    listener = AmqpOptions().listener()
    for name in AmqpListenerOptions.__struct_fields__:
        assert getattr(listener, name) == getattr(AmqpOptions(), name)
    defaults = AmqpListenerOptions(address=AmqpOptions().address)
    assert listener == defaults, "an option of the short form has another default"


@pytest.mark.parametrize(
    "text, address",
    [
        ("127.0.0.1:5672", "amqp+tcp://127.0.0.1:5672"),
        ("tcp://127.0.0.1:5672", "amqp+tcp://127.0.0.1:5672"),
        ("amqp+tls://127.0.0.1:5671", "amqp+tls://127.0.0.1:5671"),
        ("unix:///run/broker", "amqp+unix:///run/broker"),
    ],
)
def test_the_protocol_of_an_address_may_be_left_out(text: str, address: str) -> None:
    assert str(listener_address(text, "amqp")) == address


@pytest.mark.parametrize("text", ["stomp+tcp://127.0.0.1:1", "udp://127.0.0.1:1", "nowhere", "tcp://nowhere"])
def test_an_address_of_another_protocol_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="nowhere|begins with|127.0.0.1:1"):
        listener_address(text, "amqp")


def test_an_operator_closes_a_connection(two_listeners: Kernel) -> None:
    first, _ = ports(two_listeners)
    closed, other = connect(first), connect(first)
    rows = two_listeners.inspect("connections").rows
    name = rows[0]["name"]
    done = two_listeners.operate("broker", "close-connection", {"name": name, "reason": "for a test"})
    assert done == {"closed": 1}
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="320.*for a test"):
        closed.process_data_events(60)
    assert other.channel().is_open
    other.close()
    with pytest.raises(KernelError, match="there is no connection 'nobody'"):
        two_listeners.operate("broker", "close-connection", "nobody")


class WithSessions:
    """A front end with a session that has no connection."""

    def start(self) -> str:
        return "nowhere"

    def stop(self) -> None:
        pass

    def inspect(self, what: str) -> list[dict[str, Any]]:
        return [{"consumer_tag": "c"}] if what == "consumers" else []

    def statistics(self) -> dict[str, int]:
        return {"accepted": 0, "refused": 0}


def test_an_operator_sees_the_consumers_of_sessions_without_a_connection() -> None:
    def make_engine(_: EngineSetup) -> BrokerEngine:
        return BrokerEngine("broker", BrokerOptions(), [lambda engine: WithSessions()])

    with Kernel() as kernel:
        kernel.host("broker", make_engine)
        kernel.wait_running()
        assert [row["consumer_tag"] for row in kernel.inspect("consumers").rows] == ["c"]
        assert not kernel.inspect("connections").rows
