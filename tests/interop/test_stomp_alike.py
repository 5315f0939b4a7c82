"""The same STOMP conversations with our broker and with RabbitMQ's plugin have the same answers, but for a list."""

from __future__ import annotations

import re

import pytest

from kernel import EnginePlan
from kernel.testing.fixtures import KernelFactory, kernel_factory
from tests.interop.stomp_conversations import CONVERSATIONS, Lines
from tests.plugins.engines.amqp_client.rabbitmq import VERSION, RabbitMq
from tests.plugins.engines.stomp.raw_client import RawStomp

__all__ = ["kernel_factory"]

pytestmark = [pytest.mark.slow, pytest.mark.peer("rabbitmq")]

DIFFERENCES = {
    # RabbitMQ fails inside, where we say what is wrong.
    "subscribe with an identifier of ours": ("Invalid id", "Processing error"),
    "an ack mode that is none": ("Invalid header", "Processing error"),
    # The spelling of other faults of this sort, in both.
    "subscribe durably without id": ("Missing header", "Missing Header"),
}
"""The header ``message`` of ERROR frames, here and there."""
LAST_DEATH = re.compile(r", \('x-last-death-\w+', '[^']*'\)")
"""What RabbitMQ 4 adds to dead letters."""


def _have(conversation: str, port: int, name: str) -> Lines:
    clients: list[RawStomp] = []

    def open_client(version: str | None = "1.2") -> RawStomp:
        clients.append(RawStomp(port))
        if version is not None:
            assert clients[-1].connect(version).command == "CONNECTED"
        return clients[-1]

    try:
        return CONVERSATIONS[conversation](open_client, name)
    finally:
        for client in clients:
            client.socket.close()


@pytest.mark.parametrize("number, conversation", list(enumerate(CONVERSATIONS)), ids=CONVERSATIONS)
def test_a_conversation_is_the_same(
    kernel_factory: KernelFactory, rabbitmq: RabbitMq, number: int, conversation: str
) -> None:
    options = {"listeners": [{"protocol": "stomp", "address": "tcp://127.0.0.1:0"}]}
    kernel = kernel_factory(EnginePlan(name="broker", kind="broker", options=options))
    ours = _have(conversation, int(kernel.address_of("broker").rpartition(":")[2]), f"name{number}")
    theirs = _have(conversation, rabbitmq.stomp_port, f"name{number}")
    if conversation in DIFFERENCES:
        here, there = DIFFERENCES[conversation]
        assert there in theirs[0]
        theirs = [theirs[0].replace(there, here)]
    if VERSION >= (4, 0):
        theirs = [LAST_DEATH.sub("", line) for line in theirs]
    assert ours == theirs
    kernel.close(linger=0)
