"""Everyday life with librabbitmq, through its command line tools."""

from __future__ import annotations

import subprocess

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.interop.brokers import Broker

pytestmark = pytest.mark.peer("amqp-tools")


def run(tool: str, broker: Broker, *arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [f"amqp-{tool}", "--url", broker.url + "%2f", *arguments]
    return subprocess.run(command, input=given, capture_output=True, timeout=120)


def succeed(tool: str, broker: Broker, *arguments: str, given: bytes = b"") -> bytes:
    done = run(tool, broker, *arguments, given=given)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_declare_publish_get_and_delete(broker: Broker, name: str) -> None:
    assert succeed("declare-queue", broker, "--queue", name).strip() == name.encode()
    succeed("publish", broker, "--routing-key", name, "--body", "hello", "--persistent")
    assert succeed("get", broker, "--queue", name) == b"hello"
    assert run("get", broker, "--queue", name).returncode == 2
    succeed("publish", broker, "--routing-key", name, "--body", "one")
    assert succeed("delete-queue", broker, "--queue", name).strip() == b"1"


def test_a_large_body_and_lines(broker: Broker, name: str) -> None:
    succeed("declare-queue", broker, "--queue", name)
    body = bytes(range(256)) * 4096 * 30
    succeed("publish", broker, "--routing-key", name, given=body)
    assert succeed("get", broker, "--queue", name) == body
    succeed("publish", broker, "--routing-key", name, "--line-buffered", given=b"one\ntwo\nthree\n")
    assert [succeed("get", broker, "--queue", name).rstrip() for _ in range(3)] == [b"one", b"two", b"three"]


def test_consume_with_a_program_for_each_message(broker: Broker, name: str, channel: BlockingChannel) -> None:
    """It acknowledges what its program has dealt with, one by one."""
    channel.queue_declare(name)
    channel.queue_bind(name, "amq.topic", f"{name}.*")
    for number in range(5):
        succeed(
            "publish", broker, "--exchange", "amq.topic", "--routing-key", f"{name}.a", "--body", str(number)
        )
    said = succeed("consume", broker, "--queue", name, "--count", "5", "--prefetch-count", "2", "cat")
    assert said == b"01234"
    assert channel.queue_declare(name, passive=True).method.message_count == 0


def test_what_goes_wrong_is_told(broker: Broker, name: str) -> None:
    missing = run("get", broker, "--queue", name)
    assert missing.returncode == 1
    assert b"NOT_FOUND" in missing.stderr
    refused = subprocess.run(
        ["amqp-get", "--url", f"amqp://guest:wrong@{broker.address}/%2f", "--queue", name],
        capture_output=True,
    )
    assert refused.returncode == 1
    assert b"ACCESS_REFUSED" in refused.stderr
