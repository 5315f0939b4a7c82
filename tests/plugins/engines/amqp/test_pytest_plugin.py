"""The fixtures that everybody gets."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from plugins.engines.amqp.pytest_plugin import AmqpBroker
from plugins.protocols.amqp091.methods import queue
from tests.plugins.engines.amqp.raw_client import RawClient
from tests.ports import free_port

_ports: list[int] = []


@pytest.fixture
def amqp_broker_options() -> dict[str, Any]:
    """With a port that nobody else is given when it is gone."""
    return {"address": f"127.0.0.1:{free_port()}", "queues": [{"name": "orders"}]}


def test_a_broker_serves_what_its_options_say(amqp_broker: AmqpBroker) -> None:
    _ports.append(amqp_broker.port)
    assert amqp_broker.url == f"amqp://guest:guest@127.0.0.1:{amqp_broker.port}/"
    with RawClient(amqp_broker.port) as client:
        assert client.ask(queue.Declare(queue="orders", passive=True), queue.DeclareOk).message_count == 0


def test_it_is_gone_after_its_test() -> None:
    for port in _ports:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=60)


@pytest.mark.slow
def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_it.py").write_text(
        "import pytest\n\n"
        "@pytest.fixture\n"
        "def amqp_broker_options():\n"
        "    return {'adress': '127.0.0.1:0'}\n\n"
        "def test_never_run(amqp_broker):\n"
        "    pass\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert "1 error" in done.stdout
    assert "has no key 'adress'; did you mean 'address'?" in done.stdout
