"""A test suite: the fixture ``amqp_broker`` is part of messaging-kernel and needs no configuration.

pytest examples/broker_in_pytest
"""

from __future__ import annotations

from orders import next_order, place_order

from plugins.engines.amqp.pytest_plugin import AmqpBroker


def test_orders_come_out_in_the_order_in_which_they_were_placed(amqp_broker: AmqpBroker) -> None:
    place_order(amqp_broker.url, "tea")
    place_order(amqp_broker.url, "coffee")
    assert [next_order(amqp_broker.url) for _ in range(3)] == ["tea", "coffee", None]


def test_each_test_has_a_broker_of_its_own(amqp_broker: AmqpBroker) -> None:
    assert next_order(amqp_broker.url) is None
