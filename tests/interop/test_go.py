"""The suite of Go's client amqp091-go, whole, from Debian's package of its sources."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.interop.managed_brokers import watched_broker
from tests.peers import GO_PATH

pytestmark = [
    pytest.mark.peer("amqp091-go"),
    pytest.mark.peer("prometheus-client"),
    pytest.mark.slow,
    pytest.mark.timeout(540),
]

PACKAGE = "github.com/rabbitmq/amqp091-go"
FOLDER = Path(GO_PATH) / "src" / PACKAGE
MANAGEMENT = 15672 if (FOLDER / "internal" / "utils").exists() else None
"""Where later versions of the suite look for the management API."""
MANY = 100
"""Fewer tests than this are not the whole suite, which had 116 in version 1.6 and 246 in 1.16."""


def test_the_suite_of_amqp091_go_passes(tmp_path: Path) -> None:
    program = tmp_path / "suite"
    environment = os.environ | {
        "GO111MODULE": "off",
        "GOPATH": GO_PATH,
        "GOCACHE": str(tmp_path / "cache"),
        "GOFLAGS": "",
    }
    compiled = subprocess.run(
        ["go", "test", "-c", "-tags", "integration", "-o", str(program), PACKAGE],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert compiled.returncode == 0, compiled.stderr
    with watched_broker(MANAGEMENT) as broker:
        done = subprocess.run(
            [str(program), "-test.v", "-test.timeout=240s"],
            env=environment | {"AMQP_URL": f"amqp://guest:guest@127.0.0.1:{broker.amqp}/"},
            cwd=FOLDER,
            capture_output=True,
            text=True,
            timeout=270,
        )
    failed = re.findall(r"^--- FAIL: (\w+)", done.stdout, re.MULTILINE)
    assert failed == [], done.stdout[-5000:] + done.stderr
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
    assert len(re.findall(r"^--- PASS: ", done.stdout, re.MULTILINE)) >= MANY
