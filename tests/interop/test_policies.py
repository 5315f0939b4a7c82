"""Policies that change while queues have messages: our broker reads its file again, RabbitMQ obeys rabbitmqctl."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from plugins.protocols.amqp091.events import Got, MethodReceived
from plugins.protocols.amqp091.methods import basic, exchange, queue
from tests.interop.brokers import KernelProcess
from tests.interop.conftest import KINDS
from tests.interop.until import until
from tests.plugins.engines.amqp.raw_client import RawClient
from tests.ports import free_port

pytestmark = pytest.mark.slow

Put = Callable[..., None]
"""``put(name, pattern, priority, apply_to, key=value ...)`` makes or changes a policy; without a pattern it is deleted."""


class Subject:
    """A client of a broker, and how to change the policies."""

    def __init__(self, client: RawClient, put: Put) -> None:
        self.client = client
        self.put = put

    def declare(self, name: str, **arguments: Any) -> None:
        named = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        self.client.ask(queue.Declare(queue=name, durable=True, arguments=named), queue.DeclareOk)

    def ready(self, name: str) -> int:
        return self.client.ask(queue.Declare(queue=name, passive=True), queue.DeclareOk).message_count

    def publish(self, name: str, count: int) -> None:
        for number in range(count):
            self.client.publish(b"%d" % number, name)

    def has(self, name: str, count: int) -> None:
        """Wait until a queue has so many messages."""
        until(lambda: self.ready(name) == count)

    def reaches(self, source: str, name: str) -> bool:
        """Whether a message that is published to an exchange reaches a queue, which has none otherwise."""
        self.client.publish(b"x", "key", source)
        # Not ``ready``: a queue of RabbitMQ with much to do answers that before it takes new messages.
        self.client.send(basic.Get(queue=name, no_ack=True))
        return isinstance(self.client.next_of(Got, MethodReceived), Got)

    def grows_to(self, name: str, count: int) -> None:
        """Publish message by message until the queue has so many."""

        def grown() -> bool:
            self.publish(name, 1)
            # A queue of RabbitMQ may answer late, and have more by then.
            return self.ready(name) >= count

        until(grown)


def _in_toml(name: str, pattern: str, priority: int, apply_to: str, definition: dict[str, Any]) -> str:
    pairs = ", ".join(f"{key} = {json.dumps(value)}" for key, value in definition.items())
    return (
        f"[engines.broker.policies.{name}]\npattern = {json.dumps(pattern)}\npriority = {priority}\n"
        f"apply_to = {json.dumps(apply_to)}\n"
        f"definition = {{ {pairs} }}\n"
    )


def _ours(folder: Path) -> Iterator[Subject]:
    policies: dict[str, str] = {}
    with KernelProcess(folder, port=free_port()) as process:

        def put(
            name: str, pattern: str = "", priority: int = 0, apply_to: str = "queues", **definition: Any
        ) -> None:
            policies.pop(name, None)
            if pattern:
                keys = {key.replace("_", "-"): value for key, value in definition.items()}
                policies[name] = _in_toml(name, pattern, priority, apply_to, keys)
            process.reload("".join(policies.values()))

        with RawClient(process.broker.port) as client:
            yield Subject(client, put)


def _theirs(rabbitmq: Any) -> Iterator[Subject]:
    made: set[str] = set()

    def put(
        name: str, pattern: str = "", priority: int = 0, apply_to: str = "queues", **definition: Any
    ) -> None:
        if not pattern:
            made.discard(name)
            rabbitmq.control("clear_policy", name)
            return
        made.add(name)
        keys = {key.replace("_", "-"): value for key, value in definition.items()}
        options = ("--priority", str(priority), "--apply-to", apply_to)
        rabbitmq.control("set_policy", *options, name, pattern, json.dumps(keys))

    with ExitStack() as stack:
        yield Subject(stack.enter_context(RawClient(rabbitmq.port)), put)
        for name in list(made):
            put(name)


@pytest.fixture(params=KINDS)
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Subject]:
    if request.param == "kernel":
        yield from _ours(tmp_path)
    else:
        yield from _theirs(request.getfixturevalue("rabbitmq"))


def test_a_limit_counts_at_once_and_the_lesser_one(subject: Subject, name: str) -> None:
    subject.declare(name, max_length=5)
    subject.publish(name, 7)
    subject.has(name, 5)
    subject.put("limit", f"^{name}$", max_length=2)
    subject.has(name, 2)
    subject.put("limit", f"^{name}$", max_length=9)
    subject.grows_to(name, 5)
    subject.publish(name, 3)
    subject.has(name, 5)
    subject.put("limit")


def test_the_highest_priority_applies_alone(subject: Subject, name: str) -> None:
    subject.declare(f"{name}-dead")
    subject.declare(name)
    subject.publish(name, 4)
    subject.put("few", f"^{name}$", 1, max_length=1)
    subject.has(name, 1)
    subject.put("dead", f"^{name}$", 2, dead_letter_exchange="", dead_letter_routing_key=f"{name}-dead")
    subject.grows_to(name, 3)
    assert subject.ready(f"{name}-dead") == 0
    subject.put("dead")
    subject.has(name, 1)
    subject.put("few")
    subject.grows_to(name, 3)


def test_what_the_queue_says_of_overflow_counts(subject: Subject, name: str) -> None:
    subject.put("full", f"^{name}", max_length=1, overflow="reject-publish")
    subject.declare(f"{name}-own", overflow="drop-head")
    subject.declare(f"{name}-any")
    for each, left in (("own", b"1"), ("any", b"0")):
        subject.publish(f"{name}-{each}", 2)
        subject.has(f"{name}-{each}", 1)
        (body,) = subject.client.get(f"{name}-{each}").batch.bodies
        assert bytes(body) == left
    subject.put("full")


def test_messages_live_as_long_as_the_lesser_time(subject: Subject, name: str) -> None:
    subject.put("short", f"^{name}$", message_ttl=0)
    subject.declare(name, message_ttl=3_600_000)
    subject.publish(name, 3)
    subject.has(name, 0)
    subject.put("long", f"^{name}$", 1, message_ttl=7_200_000)
    subject.grows_to(name, 2)
    subject.put("long")
    subject.put("short")


def test_a_policy_gives_exchanges_an_alternate(subject: Subject, name: str) -> None:
    """What an exchange was declared with counts first, and the policy as soon as it is there."""
    other = f"{name}-other"
    for each, arguments in ((name, {}), (f"{name}-own", {"alternate-exchange": f"{name}-rest"})):
        method = exchange.Declare(exchange=each, type="direct", arguments=arguments)
        subject.client.ask(method, exchange.DeclareOk)
    for each in ("rest", "other"):
        subject.client.ask(exchange.Declare(exchange=f"{name}-{each}", type="fanout"), exchange.DeclareOk)
        subject.declare(f"{name}-{each}")
        binding = queue.Bind(queue=f"{name}-{each}", exchange=f"{name}-{each}")
        subject.client.ask(binding, queue.BindOk)
    assert not subject.reaches(name, other)
    subject.put("for-queues", f"^{name}", 2, alternate_exchange=other)
    subject.put("alternate", f"^{name}", 1, "exchanges", alternate_exchange=other)
    until(lambda: subject.reaches(name, other))
    assert subject.reaches(f"{name}-own", f"{name}-rest")
    assert not subject.reaches(f"{name}-own", other)
    subject.put("alternate", f"^{name}", 1, "all", max_length=5)
    until(lambda: not subject.reaches(name, other))
    subject.put("alternate")
    subject.put("for-queues")
