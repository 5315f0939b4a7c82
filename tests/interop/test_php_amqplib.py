"""Everyday life with php-amqplib; each check is a function of php/everyday.php."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.interop.brokers import Broker

pytestmark = [pytest.mark.peer("php-amqplib"), pytest.mark.slow]

PROGRAM = Path(__file__).parent / "php" / "everyday.php"
CHECKS = re.findall(r"^    '(\w+)' => function", PROGRAM.read_text(), re.MULTILINE)


@pytest.mark.parametrize("check", CHECKS)
def test_a_day_with_php_amqplib(broker: Broker, name: str, check: str) -> None:
    _run(check, broker, name)


@pytest.mark.parametrize(
    "check",
    [
        "publish_consume_acknowledge",
        "returns",
        "properties_of_all_types_and_large_bodies",
        "requests_and_replies",
        "transactions",
        "misuse",
        "a_wrong_password",
    ],
)
def test_the_same_in_amqp_0_8(broker: Broker, name: str, check: str) -> None:
    """Without what is no part of it: confirms, basic.nack, and that a queue goes away."""
    _run(check, broker, name, "-d", f"auto_prepend_file={PROGRAM.parent / 'version_0_8.php'}")


def _run(check: str, broker: Broker, name: str, *options: str) -> None:
    done = subprocess.run(
        ["php", *options, str(PROGRAM), check, str(broker.port), name],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
