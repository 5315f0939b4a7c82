"""Run reader: hands out what came in runs, one message or many at a time, without copying what is left each time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import length_hint
from typing import Any

from kernel.contracts.message import PLAIN, Envelope, Message, Run, run_of


class RunReader:
    """Runs that were taken and not read yet.  One thread."""

    __slots__ = ("_envelope", "_multipart", "_raw", "_runs", "bodies")

    def __init__(self) -> None:
        self._runs: deque[Run] = deque()
        self._raw: Iterator[Any] = iter(())
        self._envelope: Envelope = PLAIN
        self._multipart = False
        self.bodies: Iterator[Any] = self._raw
        """The rest of the run that is being read, body by body; the parts of a multi-part message are joined."""

    def add(self, runs: Iterable[Run]) -> None:
        """Put runs behind those that are here."""
        self._runs.extend(run for run in runs if run.bodies)

    def __bool__(self) -> bool:
        return length_hint(self._raw) > 0 or bool(self._runs)

    def more(self) -> bool:
        """Whether there is a run after the one that is being read."""
        return bool(self._runs)

    def __len__(self) -> int:
        return length_hint(self._raw) + sum(map(len, self._runs))

    def next_run(self) -> None:
        """Begin to read the next run, of which there has to be one; what is left of this one is passed over."""
        run = self._runs.popleft()
        self._envelope = run.envelope
        self._multipart = run.multipart
        self._raw = iter(run.bodies)
        self.bodies = map(b"".join, self._raw) if run.multipart else self._raw

    def run(self, most: int) -> Run:
        """Return the next messages under one envelope, ``most`` at the most; there has to be one."""
        if not length_hint(self._raw) and len(self._runs[0]) <= most:
            return self._runs.popleft()  # as it came
        self._reach()
        return run_of(list(islice(self._raw, most)), self._envelope, multipart=self._multipart)

    def message(self) -> Message:
        """Return the next message, of which there has to be one."""
        self._reach()
        if self._multipart:
            parts = next(self._raw)
            return Message(b"".join(parts), self._envelope, tuple(parts))
        return Message(next(self._raw), self._envelope)

    def _reach(self) -> None:
        if not length_hint(self._raw):
            self.next_run()
