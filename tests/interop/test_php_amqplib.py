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
    done = subprocess.run(
        ["php", str(PROGRAM), check, str(broker.port), name], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
