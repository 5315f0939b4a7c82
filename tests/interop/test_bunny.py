"""Everyday life with Bunny, Ruby's client; each check is a function of ruby/everyday.rb."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.interop.brokers import Broker

pytestmark = [pytest.mark.peer("bunny"), pytest.mark.slow]

PROGRAM = Path(__file__).parent / "ruby" / "everyday.rb"
CHECKS = re.findall(r"^  def (\w+)\(connection, \w+\)", PROGRAM.read_text(), re.MULTILINE)


@pytest.mark.parametrize("check", CHECKS)
def test_a_day_with_bunny(broker: Broker, name: str, check: str) -> None:
    done = subprocess.run(
        ["ruby", str(PROGRAM), check, str(broker.port), name], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
