"""Everyday life with amqp-client.js of CloudAMQP; each check is a function of node/amqp_client.js."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.interop.brokers import Broker

pytestmark = pytest.mark.peer("node-amqp-client")

PROGRAM = Path(__file__).parent / "node" / "amqp_client.js"
CHECKS = re.findall(r"^  async (\w+)\(", PROGRAM.read_text(), re.MULTILINE)


@pytest.mark.parametrize("check", CHECKS)
def test_a_day_with_amqp_client(broker: Broker, name: str, check: str) -> None:
    done = subprocess.run(
        ["node", str(PROGRAM), check, str(broker.port), name], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
