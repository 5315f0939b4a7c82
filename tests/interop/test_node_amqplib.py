"""Everyday life with Node's amqplib; each check is a function of node/everyday.js."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.interop.brokers import Broker

pytestmark = pytest.mark.peer("node-amqplib")

PROGRAM = Path(__file__).parent / "node" / "everyday.js"
CHECKS = re.findall(r"^  async (\w+)\(", PROGRAM.read_text(), re.MULTILINE)


@pytest.mark.parametrize("check", CHECKS)
def test_a_day_with_amqplib(broker: Broker, name: str, check: str) -> None:
    done = subprocess.run(
        ["node", str(PROGRAM), check, str(broker.port), name], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
