"""``kernel bench``: measures in a moment and prints a line for each size."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_bench_ends_when_the_other_process_fails() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kernel", "bench", "--seconds", "0.05"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        # Without the plugin ``stream`` neither process can make its kernel.  The child tries first.
        env={**os.environ, "KERNEL_PLUGINS": "native"},
    )
    assert done.returncode == 1
    assert done.stderr.endswith(
        "kernel: the other process of the measurement has failed, for the reason above\n"
    )


@pytest.mark.slow
def test_bench_prints_rates_and_round_trips() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kernel", "bench", "--seconds", "0.05"],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("msg/s") == 4
    assert "round trip" in done.stdout
