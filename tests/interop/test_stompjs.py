"""Everyday life with @stomp/stompjs over WebSocket; each check is a function of node/stomp.js."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel import EnginePlan
from kernel.testing.fixtures import KernelFactory, kernel_factory

__all__ = ["kernel_factory"]

pytestmark = [pytest.mark.peer("node-stompjs"), pytest.mark.slow]

PROGRAM = Path(__file__).parent / "node" / "stomp.js"
CHECKS = re.findall(r"^  async (\w+)\(", PROGRAM.read_text(), re.MULTILINE)


@pytest.fixture
def url(kernel_factory: KernelFactory) -> Iterator[str]:
    pytest.importorskip("wsproto")
    options = {"listeners": [{"protocol": "stomp", "address": "ws://127.0.0.1:0/ws"}]}
    kernel = kernel_factory(EnginePlan(name="broker", kind="broker", options=options))
    port = int(re.findall(r":(\d+)", kernel.address_of("broker"))[0])
    yield f"ws://127.0.0.1:{port}/ws"
    kernel.close(linger=0)


@pytest.mark.parametrize("check", CHECKS)
def test_a_day_with_stompjs(url: str, check: str, name: str) -> None:
    done = subprocess.run(
        ["node", str(PROGRAM), check, url, name], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
