"""``make demo``: the main job, on real input, with real clients."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ports
from tests.interop.until import until
from tests.peers import PEERS

ROOT = Path(__file__).resolve().parents[2]
RECORDS = 6000


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_demonstration_ends_with_numbers_that_agree() -> None:
    """With a fifth of its records."""
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo"],
        cwd=ROOT,
        env={**os.environ, "RECORDS": str(RECORDS)},
        capture_output=True,
        text=True,
        timeout=880,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the numbers agree" in done.stdout
    assert f"{RECORDS:,} records" in done.stdout
    assert "routed to bridge" in done.stdout
    assert "counted by Spark" in done.stdout
    assert "Who sets the pace" in done.stdout
    assert "Three protocols, one topic" in done.stdout
    # One more in the table, or a line that says what is missing.
    assert ("a page (MQTT)" in done.stdout) == PEERS["chromium"].present()
    assert ("No page takes part" in done.stdout) != PEERS["chromium"].present()
    report = Path(re.search(r"The report: (\S+)", done.stdout)[1])  # type: ignore[index]
    assert report.read_text(encoding="utf-8").count("<svg") == 4
    shutil.rmtree(report.parents[1])


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("browser", [pytest.param(True, marks=pytest.mark.peer("chromium")), False])
def test_each_client_gets_what_all_have_published(browser: bool, tmp_path: Path) -> None:
    """With a page among them, if there is a browser."""
    named = ("AMQP_PORT", "MQTT_PORT", "MQTT_WEB_PORT", "STOMP_PORT", "BRIDGE_PORT", "RESULTS_PORT")
    env = {
        **os.environ,
        **{name: str(ports.free_port()) for name in named},
        "JOURNAL_DIR": str(tmp_path / "journal"),
        "BROWSER": (shutil.which("chromium") or "") if browser else "",
    }
    topology = ROOT / "examples" / "demo" / "broker.toml"
    with subprocess.Popen(
        [sys.executable, "-m", "kernel", "run", str(topology)], cwd=ROOT, env=env
    ) as kernel:
        try:
            until(lambda: _listens(int(env["AMQP_PORT"])))
            done = subprocess.run(
                [sys.executable, "-m", "examples.demo.exchange_between_protocols"],
                cwd=ROOT,
                env=env,
                capture_output=True,
                text=True,
                timeout=250,
                check=False,
            )
        finally:
            kernel.terminate()
    assert done.returncode == 0, done.stderr
    names = ["pika", "paho", "stomp.py", *(["browser"] if browser else [])]
    assert json.loads(done.stdout)["received"] == {
        name: {publisher: json.loads(done.stdout)["expected"] for publisher in names} for name in names
    }


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
