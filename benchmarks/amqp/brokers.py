"""Brokers: where one listens, and what its process has used so far."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.amqp import ours
from benchmarks.processes import Child, processor

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Broker:
    """A running broker."""

    def __init__(self, name: str, address: str, pid: int) -> None:
        self.name = name
        self.address = address
        self._folder = Path(f"/proc/{pid}")

    def processor_seconds(self) -> float:
        """Seconds that all its threads have worked."""
        fields = (self._folder / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICK

    def resident(self) -> int:
        """Bytes of its memory that are there, and not on loan."""
        return int((self._folder / "statm").read_text().split()[1]) * _PAGE

    def stay_on(self, cpu: int) -> None:
        """Have its threads run on one processor only: of those that there are, the first being 0."""
        only = processor(cpu)
        for thread in (self._folder / "task").iterdir():
            os.sched_setaffinity(int(thread.name), only)


@contextmanager
def our_broker(spin: float | None = None, cpu: int | None = None, **options: Any) -> Iterator[Broker]:
    """Run our broker for one measurement.

    ``spin`` is an option of its poll thread, ``cpu`` that of a child process, ``options`` are the engine's.
    """
    with Child(ours.broker, spin, options, cpu=cpu) as child:
        address = child.hear()
        yield Broker("kernel", address, child.pid)


@contextmanager
def durable_broker() -> Iterator[Broker]:
    """Run ours with a store in a temporary folder, where RabbitMQ's is, too."""
    with tempfile.TemporaryDirectory(prefix="kernel-bench-") as folder, our_broker(data_dir=folder) as broker:
        yield broker
