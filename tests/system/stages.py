"""Stages: processes in a row that a test kills and starts again, each on the address that it had."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Protocol

import pytest

ROOT = Path(__file__).parents[2]
TIMEOUT = 180.0


class Stage(Protocol):
    """A process."""

    def start(self) -> None:
        """Start it, and wait until it can be used."""
        ...

    def stop(self) -> None:
        """Kill it: SIGKILL."""
        ...


class KernelRun:
    """``kernel run`` with a topology."""

    def __init__(self, folder: Path, name: str, topology: str) -> None:
        self._file = folder / f"{name}.toml"
        self._log = folder / f"{name}.log"
        self._file.write_text(topology)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until every engine is up."""
        reading, writing = os.pipe()
        command = [sys.executable, "-m", "kernel", "run", "--no-control", "--ready-fd", str(writing)]
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                [*command, str(self._file)], stdout=log, stderr=log, pass_fds=(writing,)
            )
        os.close(writing)
        with os.fdopen(reading) as ready:
            assert ready.read(), self._log.read_text()

    def stop(self) -> None:
        """Kill it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(TIMEOUT)
            self._process = None


class Program:
    """A Python program, which is there once it has printed a line; what it prints then is passed on."""

    def __init__(self, text: str, arguments: Callable[[], list[str]]) -> None:
        self._text = text
        self._arguments = arguments
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it, and wait for its first line."""
        self._process = subprocess.Popen(
            [sys.executable, "-c", self._text, *self._arguments()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert self.line(), "it ended at once"

    def line(self) -> str:
        """Return its next line; empty at its end."""
        assert self._process is not None
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def kill(self) -> None:
        """Kill it; what it has printed can still be read."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(TIMEOUT)

    def stop(self) -> None:
        """Kill it, and forget what it has printed."""
        if self._process is not None:
            self.kill()
            self._process.communicate()
            self._process = None


@pytest.fixture
def stages() -> Iterator[list[Stage]]:
    """Those that do not outlive the test."""
    made: list[Stage] = []
    yield made
    for stage in made:
        stage.stop()


def kill_at_random(
    stages: list[Stage], seed: int, kills: int, total: int, progress: Callable[[], int]
) -> None:
    """Kill one after the other as the flow goes on, and start it again, at once or after the flow has stood still.

    In random order, but each as often as the others.
    """
    chance = random.Random(seed)
    print("seed", seed)
    victims = [stages[number % len(stages)] for number in range(kills)]
    chance.shuffle(victims)
    moments = sorted(chance.sample(range(total // 20, total - total // 20), kills))
    for at, victim in zip(moments, victims, strict=True):
        until(lambda at=at: progress() >= at)  # type: ignore[misc]
        victim.stop()
        sleep(chance.choice((0.0, 0.0, 0.3)))  # for what the others do meanwhile
        victim.start()


def until(condition: Callable[[], bool]) -> None:
    """Wait for what another process does."""
    deadline = monotonic() + TIMEOUT
    while not condition():
        assert monotonic() < deadline, "nothing moves any more"
        sleep(0.002)
