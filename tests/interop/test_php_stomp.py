"""Everyday life with PHP's extension stomp; each check is a function of php/stomp.php."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from kernel import EnginePlan
from kernel.testing.fixtures import KernelFactory, kernel_factory

__all__ = ["kernel_factory"]

pytestmark = [pytest.mark.peer("php-stomp"), pytest.mark.slow]

PROGRAM = Path(__file__).parent / "php" / "stomp.php"
CHECKS = re.findall(r"^    '(\w+)' => function", PROGRAM.read_text(), re.MULTILINE)


@pytest.fixture
def port(kernel_factory: KernelFactory) -> int:
    listeners = [{"protocol": "stomp", "address": "tcp://127.0.0.1:0"}]
    kernel = kernel_factory(EnginePlan(name="broker", kind="broker", options={"listeners": listeners}))
    return int(kernel.address_of("broker").rpartition(":")[2])


@pytest.mark.parametrize("check", CHECKS)
def test_a_day_with_the_extension_stomp(port: int, check: str, name: str) -> None:
    done = subprocess.run(
        ["php", str(PROGRAM), check, str(port), f"/queue/{name}"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
