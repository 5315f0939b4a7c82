"""Everyday life with RabbitMQ's client for Java; the checks are in java/Everyday.java."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.interop.brokers import Broker
from tests.peers import JAVA_CLIENT

pytestmark = [pytest.mark.peer("java-client"), pytest.mark.slow]

PROGRAM = Path(__file__).parent / "java" / "Everyday.java"
CLASSES = f"{JAVA_CLIENT}:{Path(JAVA_CLIENT).parent / 'slf4j-api.jar'}"


def test_a_day_with_the_java_client(broker: Broker, name: str) -> None:
    done = subprocess.run(
        ["java", "-cp", CLASSES, str(PROGRAM), str(broker.port), name],
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
