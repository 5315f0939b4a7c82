"""A client of the management API for Node (http-rabbitmq-manager): the same with ours and with RabbitMQ's."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.interop.managed_brokers import Managed

pytestmark = [pytest.mark.peer("node-rabbitmq-manager"), pytest.mark.peer("prometheus-client")]

SCRIPT = Path(__file__).parent / "node" / "management.js"


def test_the_client_finds_declares_and_deletes(managed: Managed, name: str) -> None:
    done = subprocess.run(
        ["node", str(SCRIPT), str(managed.web), name], capture_output=True, text=True, timeout=60.0
    )
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stdout + done.stderr
