"""The exchange type in a broker: each test declares exchanges and counts what arrives where."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from kernel_consistent_hash import plugin

from kernel import EnginePlan, Kernel, Plan
from kernel.contracts.message import Batch, Envelope
from kernel.plugins import Origin, PluginRegistry
from plugins.engines.broker.broker import Broker
from plugins.engines.broker.errors import CommandInvalid, PreconditionFailed
from plugins.engines.broker.virtual_host import VirtualHost

TYPE = "x-consistent-hash"
KEYS = [f"customer {number}" for number in range(4000)]


@pytest.fixture
def vhost() -> VirtualHost:
    types = {kind.name: kind.create for kind in plugin.register_exchange_types()}
    return Broker(exchange_types=types).vhost("/")


def bind(vhost: VirtualHost, weights: Mapping[str, str], **arguments: str) -> None:
    vhost.declare_exchange(
        "x", TYPE, arguments={name.replace("_", "-"): arguments[name] for name in arguments}
    )
    for name, weight in weights.items():
        vhost.bind("x", vhost.declare_queue(name, None, 0.0), weight)


def where(vhost: VirtualHost, key: str = "", **properties: Any) -> str:
    """Return the queue that a message goes to."""
    (queue,) = vhost.routes.find(Envelope(exchange="x", key=key, properties=properties)).queues
    return queue.name


def shares(vhost: VirtualHost) -> dict[str, str]:
    return {key: where(vhost, key) for key in KEYS}


def test_each_queue_gets_what_its_weight_says(vhost: VirtualHost) -> None:
    weights = {"a": "1", "b": "1", "c": "2", "d": "4"}
    bind(vhost, weights)
    went = list(shares(vhost).values())
    for name, weight in weights.items():
        assert went.count(name) / len(KEYS) == pytest.approx(int(weight) / 8, abs=0.03)


def test_a_queue_that_comes_takes_its_share_and_moves_nothing_else(vhost: VirtualHost) -> None:
    bind(vhost, {"a": "1", "b": "1", "c": "2"})
    before = shares(vhost)
    bind(vhost, {"new": "1"})
    after = shares(vhost)
    moved = [key for key in KEYS if before[key] != after[key]]
    assert {after[key] for key in moved} == {"new"}
    assert len(moved) / len(KEYS) == pytest.approx(1 / 5, abs=0.03)


def test_a_queue_that_goes_leaves_its_share_and_moves_nothing_else(vhost: VirtualHost) -> None:
    bind(vhost, {"a": "1", "b": "1", "c": "1"})
    before = shares(vhost)
    vhost.delete_queue("b", None, 0.0)
    after = shares(vhost)
    assert all(after[key] == before[key] for key in KEYS if before[key] != "b")
    assert {after[key] for key in KEYS if before[key] == "b"} == {"a", "c"}


def test_it_is_the_same_wherever_and_in_whatever_order_queues_are_bound(vhost: VirtualHost) -> None:
    bind(vhost, {"a": "1", "b": "2", "c": "3"})
    types = {kind.name: kind.create for kind in plugin.register_exchange_types()}
    other = Broker(exchange_types=types).vhost("/")
    bind(other, {"c": "3", "a": "1", "b": "2"})
    assert shares(vhost) == shares(other)


def test_a_queue_that_is_bound_twice_counts_once_with_its_first_weight(vhost: VirtualHost) -> None:
    bind(vhost, {"a": "1", "b": "1"})
    before = shares(vhost)
    bind(vhost, {"a": "5"})
    assert shares(vhost) == before
    vhost.unbind("x", vhost.queues["a"], "1")
    assert list(shares(vhost).values()).count("a") / len(KEYS) == pytest.approx(5 / 6, abs=0.03)


def test_a_header_decides(vhost: VirtualHost) -> None:
    bind(vhost, {"a": "1", "b": "1", "c": "1"}, hash_header="customer")
    went = {where(vhost, str(number), headers={"customer": 17}) for number in range(100)}
    assert len(went) == 1
    assert {where(vhost, "k", headers={"customer": number}) for number in range(100)} == {"a", "b", "c"}
    assert len({where(vhost, str(number)) for number in range(100)}) == 1, "without it, all go to one"


@pytest.mark.parametrize("name", ["message_id", "correlation_id", "timestamp"])
def test_a_property_decides(vhost: VirtualHost, name: str) -> None:
    bind(vhost, {"a": "1", "b": "1", "c": "1"}, hash_property=name)
    assert {where(vhost, "k", **{name: str(number)}) for number in range(100)} == {"a", "b", "c"}
    assert len({where(vhost, str(number), **{name: "same"}) for number in range(100)}) == 1


def test_without_a_binding_nobody_gets_it(vhost: VirtualHost) -> None:
    bind(vhost, {})
    assert vhost.publish(Batch([b"x"], 1, Envelope(exchange="x", key="k")), 0.0) is None


@pytest.mark.parametrize(
    "weight, refusal",
    [
        ("x", 'The binding key must be an integer: <<"x">>'),
        ("1.5", 'The binding key must be an integer: <<"1.5">>'),
        (" 1", 'The binding key must be an integer: <<" 1">>'),
        ("0", "The binding key must be greater than 0"),
        ("-1", "The binding key must be greater than 0"),
    ],
)
def test_what_is_no_weight_is_refused_as_rabbitmq_refuses_it(
    vhost: VirtualHost, weight: str, refusal: str
) -> None:
    with pytest.raises(PreconditionFailed) as refused:
        bind(vhost, {"a": weight})
    assert refused.value.text == f"PRECONDITION_FAILED - {refusal}"


@pytest.mark.parametrize(
    "arguments, refusal",
    [
        (
            {"hash_header": "a", "hash_property": "timestamp"},
            "hash-header and hash-property are mutually exclusive",
        ),
        ({"hash_property": "colour"}, "Unsupported property: colour"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    vhost: VirtualHost, arguments: dict[str, str], refusal: str
) -> None:
    with pytest.raises(PreconditionFailed, match=refusal):
        bind(vhost, {}, **arguments)


def test_nobody_has_it_without_the_plugin() -> None:
    with pytest.raises(CommandInvalid, match="unknown exchange type 'x-consistent-hash'"):
        Broker().vhost("/").declare_exchange("x", TYPE)


def test_a_kernel_declares_one() -> None:
    registry = PluginRegistry.load()
    if "consistent-hash" not in registry.plugins:
        registry.add(plugin, Origin("consistent-hash", "kernel-consistent-hash", "1.0"))
    options = {
        "address": "127.0.0.1:0",
        "exchanges": [{"name": "orders", "type": TYPE}],
        "queues": [{"name": "a"}, {"name": "b"}],
        "bindings": [{"exchange": "orders", "queue": name, "key": "1"} for name in ("a", "b")],
    }
    broker = EnginePlan(name="broker", kind="amqp", options=options)
    with Kernel(Plan(engines=(broker,)), registry) as kernel:
        kernel.wait_running()
        types = {row["name"]: row["type"] for row in kernel.inspect("exchanges").rows}
    assert types["orders"] == TYPE
