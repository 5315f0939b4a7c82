"""The exchange type in a broker: each test declares exchanges and counts what arrives where."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from kernel_consistent_hash import plugin

from kernel import EnginePlan, Kernel, Origin, Plan, PluginRegistry
from plugins.engines.broker.contract import PreconditionFailed
from plugins.engines.broker.testing import ExchangeUnderTest

TYPE = "x-consistent-hash"
KEYS = [f"customer {number}" for number in range(4000)]


def exchange(weights: Mapping[str, str], **arguments: str) -> ExchangeUnderTest:
    """Return an exchange with these queues."""
    (kind,) = plugin.register_exchange_types()
    made = ExchangeUnderTest(kind, {name.replace("_", "-"): arguments[name] for name in arguments})
    for name, weight in weights.items():
        made.bind(name, weight)
    return made


def where(made: ExchangeUnderTest, key: str = "", **properties: Any) -> str:
    """Return the queue that a message goes to."""
    (queue,) = made.queues_for(key, **properties)
    return queue


def shares(made: ExchangeUnderTest) -> dict[str, str]:
    return {key: where(made, key) for key in KEYS}


def test_each_queue_gets_what_its_weight_says() -> None:
    weights = {"a": "1", "b": "1", "c": "2", "d": "4"}
    made = exchange(weights)
    went = list(shares(made).values())
    for name, weight in weights.items():
        assert went.count(name) / len(KEYS) == pytest.approx(int(weight) / 8, abs=0.03)


def test_a_queue_that_comes_takes_its_share_and_moves_nothing_else() -> None:
    made = exchange({"a": "1", "b": "1", "c": "2"})
    before = shares(made)
    made.bind("new", "1")
    after = shares(made)
    moved = [key for key in KEYS if before[key] != after[key]]
    assert {after[key] for key in moved} == {"new"}
    assert len(moved) / len(KEYS) == pytest.approx(1 / 5, abs=0.03)


def test_a_queue_that_goes_leaves_its_share_and_moves_nothing_else() -> None:
    made = exchange({"a": "1", "b": "1", "c": "1"})
    before = shares(made)
    made.delete_queue("b")
    after = shares(made)
    assert all(after[key] == before[key] for key in KEYS if before[key] != "b")
    assert {after[key] for key in KEYS if before[key] == "b"} == {"a", "c"}


def test_it_is_the_same_wherever_and_in_whatever_order_queues_are_bound() -> None:
    made = exchange({"a": "1", "b": "2", "c": "3"})
    other = exchange({"c": "3", "a": "1", "b": "2"})
    assert shares(made) == shares(other)


def test_a_queue_that_is_bound_twice_counts_once_with_its_first_weight() -> None:
    made = exchange({"a": "1", "b": "1"})
    before = shares(made)
    made.bind("a", "5")
    assert shares(made) == before
    made.unbind("a", "1")
    assert list(shares(made).values()).count("a") / len(KEYS) == pytest.approx(5 / 6, abs=0.03)


def test_a_header_decides() -> None:
    made = exchange({"a": "1", "b": "1", "c": "1"}, hash_header="customer")
    went = {where(made, str(number), headers={"customer": 17}) for number in range(100)}
    assert len(went) == 1
    assert {where(made, "k", headers={"customer": number}) for number in range(100)} == {"a", "b", "c"}
    assert len({where(made, str(number)) for number in range(100)}) == 1, "without it, all go to one"


@pytest.mark.parametrize("name", ["message_id", "correlation_id", "timestamp"])
def test_a_property_decides(name: str) -> None:
    made = exchange({"a": "1", "b": "1", "c": "1"}, hash_property=name)
    assert {where(made, "k", **{name: str(number)}) for number in range(100)} == {"a", "b", "c"}
    assert len({where(made, str(number), **{name: "same"}) for number in range(100)}) == 1


def test_without_a_binding_nobody_gets_it() -> None:
    made = exchange({})
    assert made.queues_for("k") == []


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
def test_what_is_no_weight_is_refused_as_rabbitmq_refuses_it(weight: str, refusal: str) -> None:
    with pytest.raises(PreconditionFailed) as refused:
        exchange({"a": weight})
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
def test_arguments_that_make_no_sense_are_refused(arguments: dict[str, str], refusal: str) -> None:
    with pytest.raises(PreconditionFailed, match=refusal):
        exchange({}, **arguments)


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
