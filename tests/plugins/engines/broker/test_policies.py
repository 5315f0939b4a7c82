"""Policies of operators: which one applies, what it changes, and when."""

from __future__ import annotations

from typing import Any

import pytest

from plugins.engines.broker.broker import Broker
from plugins.engines.broker.policies import Policy, check_policy, under_policy, unknown_keys
from plugins.engines.broker.queue import Queue
from tests.notes import for_each
from tests.plugins.engines.broker.client import Client, run
from tests.plugins.engines.broker.storage.durable import DurableBroker


def policy(name: str = "p", pattern: str = "", priority: int = 0, **definition: Any) -> Policy:
    keys = {key.replace("_", "-"): value for key, value in definition.items()}
    return Policy(name=name, vhost="/", pattern=pattern, priority=priority, definition=keys)


class Subject:
    """A broker with a queue, and how to change its policies."""

    def __init__(self, **arguments: Any) -> None:
        self.broker = Broker()
        self.vhost = self.broker.vhost("/")
        self.client = Client(self.vhost)
        self.queue = self.declare("orders", **arguments)

    def declare(self, name: str, **arguments: Any) -> Queue:
        named = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        return self.vhost.declare_queue(name, None, 0.0, arguments=named)

    def put(self, *policies: Policy, now: float = 0.0) -> None:
        self.broker.policies.take_options(policies)
        self.broker.apply_policies(now)
        self.broker.process(now)

    def publish(self, *bodies: bytes, now: float = 0.0) -> int | None:
        accepted = self.vhost.publish(run(*bodies, key=self.queue.name), now)
        self.broker.process(now)
        return accepted

    def bodies(self, now: float = 0.0) -> list[bytes]:
        found = []
        while (taken := self.client.receiver.take_one(self.queue, now, auto_ack=True)) is not None:
            found.append(bytes(taken[1].as_batch().bodies[0]))
        return found


def test_one_policy_applies_that_of_the_highest_priority() -> None:
    subject = Subject()
    low = policy("low", "^ord", 1, max_length=1, message_ttl=1000)
    high = policy("high", "ders$", 2, max_length=3)
    subject.put(policy("other", "^bills", 9, max_length=0), low, high)
    assert subject.queue.operator_policy == high
    assert (subject.queue.policy.max_length, subject.queue.policy.message_ttl) == (3, None)
    subject.put(low)
    assert (subject.queue.policy.max_length, subject.queue.policy.message_ttl) == (1, 1.0)
    subject.put()
    assert subject.queue.operator_policy is None
    assert subject.queue.policy.max_length is None
    subject.put(policy("b", max_length=2), policy("a", max_length=1))
    assert subject.queue.policy.max_length == 1, "of one priority, the first by name"


def test_a_queue_that_is_declared_later_has_it_too() -> None:
    subject = Subject()
    subject.put(policy(pattern="^late", max_length=1))
    assert subject.declare("later").policy.max_length == 1
    assert subject.declare("orders").policy.max_length is None, "the declaration of before is no other one"
    assert subject.vhost.make_queue("late", 0.0, takes_policies=False).policy.max_length is None
    subject.put(policy(pattern="^late", max_length=2))
    assert subject.vhost.queues["late"].policy.max_length is None


@for_each(
    "own, theirs, applies",
    [
        ({"x-max-length": 5}, {"max-length": 3}, {"x-max-length": 3}),
        ({"x-max-length": 5}, {"max-length": 7}, {"x-max-length": 5}),
        ({"x-message-ttl": 5}, {"expires": 7}, {"x-message-ttl": 5, "x-expires": 7}),
        ({"x-overflow": "drop-head"}, {"overflow": "reject-publish"}, {"x-overflow": "drop-head"}),
        ({"x-dead-letter-exchange": "a"}, {"dead-letter-exchange": "b"}, {"x-dead-letter-exchange": "a"}),
        ({}, {"dead-letter-routing-key": "k"}, {}),
        ({"x-delivery-limit": "some"}, {"delivery-limit": 2}, {"x-delivery-limit": "some"}),
        ({"x-other": 1}, {"ha-mode": "all"}, {"x-other": 1}),
    ],
)
def test_numbers_are_the_lesser_and_others_the_queues_own(
    own: dict[str, Any], theirs: dict[str, Any], applies: dict[str, Any]
) -> None:
    given = Policy(name="p", vhost="/", pattern="", definition=theirs)
    assert under_policy(own, given) == applies


def test_a_limit_counts_at_once() -> None:
    subject = Subject()
    subject.publish(b"1", b"2", b"3")
    subject.put(policy(max_length=2))
    assert subject.bodies() == [b"2", b"3"]
    subject.put(policy(max_length=2, overflow="reject-publish"))
    assert subject.publish(b"4", b"5", b"6") == 2
    subject.put()
    assert subject.publish(b"7") == 1
    assert subject.bodies() == [b"4", b"5", b"7"]


def test_a_time_to_live_counts_for_what_comes_later() -> None:
    subject = Subject()
    subject.publish(b"before")
    subject.put(policy(message_ttl=1000))
    subject.publish(b"after")
    subject.put()
    assert subject.queue.backlog.count == 2
    subject.broker.handle_timeout(5.0)
    subject.broker.process(5.0)
    assert subject.bodies(5.0) == [b"before"]


def test_a_queue_that_is_unused_expires() -> None:
    subject = Subject()
    subject.put(policy(expires=1000), now=10.0)
    subject.broker.handle_timeout(10.9)
    assert "orders" in subject.vhost.queues
    subject.broker.handle_timeout(11.1)
    assert "orders" not in subject.vhost.queues


def test_dead_letters_go_where_the_policy_says() -> None:
    subject = Subject(max_length=1)
    dead = subject.declare("dead")
    subject.put(policy(pattern="^orders", dead_letter_exchange="", dead_letter_routing_key="dead"))
    subject.publish(b"1", b"2")
    assert dead.backlog.count == 1


@pytest.mark.parametrize("unreadable", ["(", "*"])
def test_a_pattern_that_is_none_is_refused(unreadable: str) -> None:
    with pytest.raises(ValueError, match="is no regular expression"):
        check_policy(policy(pattern=unreadable))


def test_a_value_that_is_not_acceptable_is_refused() -> None:
    with pytest.raises(ValueError, match=r"max-length = 'many'"):
        check_policy(policy(max_length="many"))
    with pytest.raises(ValueError, match=r"delivery-limit = -1"):
        check_policy(policy(delivery_limit=-1))
    assert unknown_keys(policy(ha_mode="all", max_length=1).definition) == ["ha-mode"]


def test_a_limit_of_octets_after_a_restart_drops_no_more_than_it_has_to() -> None:
    """Sizes of messages that are on disk are estimates until then."""
    first = DurableBroker()
    queue = first.declare("q")
    first.vhost.publish(run(b"x" * 1000, b"1", b"2", key="q", persistent=True), 0.0)
    first.client.receiver.take_one(queue, 0.0, auto_ack=True)
    first.drain()
    again = first.reopened()
    again.broker.policies.take_options([policy(max_length_bytes=2)])
    again.broker.apply_policies(0.0)
    again.process()
    assert again.take_all("q") == [b"1", b"2"]
