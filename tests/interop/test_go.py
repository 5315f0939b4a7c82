"""The suite of Go's client amqp091-go, whole, from Debian's package of its sources."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.interop.conftest import KernelProcess
from tests.peers import GO_PATH

pytestmark = [pytest.mark.peer("amqp091-go"), pytest.mark.slow]

PACKAGE = "github.com/rabbitmq/amqp091-go"
MANY = 100
"""Fewer tests than this are not the whole suite, which had 116 in version 1.6."""


def test_the_suite_of_amqp091_go_passes(kernel_process: KernelProcess, tmp_path: Path) -> None:
    program = tmp_path / "suite"
    environment = os.environ | {
        "GO111MODULE": "off",
        "GOPATH": GO_PATH,
        "GOCACHE": str(tmp_path / "cache"),
        "GOFLAGS": "",
        "AMQP_URL": f"amqp://guest:guest@127.0.0.1:{kernel_process.broker.port}/",
    }
    compiled = subprocess.run(
        ["go", "test", "-c", "-tags", "integration", "-o", str(program), PACKAGE],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert compiled.returncode == 0, compiled.stderr
    done = subprocess.run(
        [str(program), "-test.v", "-test.timeout=120s"],
        env=environment,
        cwd=f"{GO_PATH}/src/{PACKAGE}",
        capture_output=True,
        text=True,
        timeout=150,
    )
    failed = re.findall(r"^--- FAIL: (\w+)", done.stdout, re.MULTILINE)
    assert failed == [], done.stdout[-5000:] + done.stderr
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
    assert len(re.findall(r"^--- PASS: ", done.stdout, re.MULTILINE)) >= MANY
