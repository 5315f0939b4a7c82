"""Binding index: a session learns which of its bindings a message came by."""

from __future__ import annotations

from typing import Any

import pytest

from kernel.contracts.message import Envelope
from plugins.engines.broker.binding_index import BindingIndex
from plugins.engines.broker.virtual_host import VirtualHost
from tests.plugins.engines.broker.client import make_vhost


@pytest.fixture
def vhost() -> VirtualHost:
    vhost = make_vhost()
    vhost.declare_queue("q", None, 0.0)
    return vhost


def identifiers(index: BindingIndex, key: str, exchange: str = "amq.topic", **properties: Any) -> list[int]:
    envelope = Envelope(exchange=exchange, key=key, properties=properties)
    return sorted(binding.arguments["id"] for binding in index.find(envelope))


def test_all_bindings_that_fit_are_found_and_no_others(vhost: VirtualHost) -> None:
    queue, other = vhost.queues["q"], vhost.declare_queue("other", None, 0.0)
    index = BindingIndex(queue, vhost.broker.exchange_types)
    vhost.bind("amq.topic", queue, "a.#", {"id": 1})
    vhost.bind("amq.topic", queue, "a.*", {"id": 2})
    vhost.bind("amq.topic", queue, "#", {"id": 3})
    vhost.bind("amq.topic", other, "#", {"id": 4})
    assert identifiers(index, "a.b") == [1, 2, 3]
    assert identifiers(index, "a") == [1, 3]
    assert identifiers(index, "a", exchange="amq.direct") == []


def test_the_same_pattern_twice_is_found_twice(vhost: VirtualHost) -> None:
    index = BindingIndex(vhost.queues["q"], vhost.broker.exchange_types)
    vhost.bind("amq.topic", vhost.queues["q"], "a", {"id": 1})
    vhost.bind("amq.topic", vhost.queues["q"], "a", {"id": 2})
    assert identifiers(index, "a") == [1, 2]


def test_a_change_of_bindings_is_seen(vhost: VirtualHost) -> None:
    queue = vhost.queues["q"]
    index = BindingIndex(queue, vhost.broker.exchange_types)
    envelope = Envelope(exchange="amq.topic", key="a")
    assert index.find(envelope) == ()
    vhost.bind("amq.topic", queue, "a", {"id": 1})
    assert [binding.arguments["id"] for binding in index.find(envelope)] == [1]
    vhost.unbind("amq.topic", queue, "a", {"id": 1})
    assert index.find(envelope) == ()


def test_bindings_of_other_types_of_exchange_are_found_likewise(vhost: VirtualHost) -> None:
    queue = vhost.queues["q"]
    index = BindingIndex(queue, vhost.broker.exchange_types)
    vhost.bind("amq.headers", queue, "", {"id": 1, "x-match": "any", "colour": "red"})
    vhost.bind("amq.headers", queue, "", {"id": 2, "x-match": "any", "colour": "blue"})
    assert identifiers(index, "", exchange="amq.headers", headers={"colour": "red"}) == [1]
