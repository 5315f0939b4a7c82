"""Writer: the thread in which a store writes and waits for the disk, so that the broker's does not.

Writing and syncing leave the interpreter's lock to others.  The log submits one write at a
time: what comes meanwhile makes the next group.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Protocol as Interface

Work = Callable[[], Callable[[], None]]
"""Called in the writer's thread; returns a function that is called in the broker's thread."""


class Writer(Interface):
    """Runs work that may wait for a disk.  All methods are called by the broker's thread."""

    def submit(self, work: Work, delay: float = 0.0) -> None:
        """Do this after what was submitted before, ``delay`` seconds later (sooner when closing)."""
        ...

    def wait(self) -> None:
        """Return once all submitted work is done, and its functions were called."""
        ...

    def close(self) -> None:
        """Do what was submitted without further delays, and end the thread."""
        ...


class WriterThread:
    """The thread."""

    def __init__(self, name: str, post: Callable[[Callable[[], None]], None]) -> None:
        """``post`` has its argument called in the broker's thread, from any thread."""
        self._post = post
        self._work: SimpleQueue[tuple[Work, float] | None] = SimpleQueue()
        self._done: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._open = 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Work, delay: float = 0.0) -> None:
        self._open += 1
        self._work.put((work, delay))

    def wait(self) -> None:
        while self._open:
            self._call(self._done.get())

    def close(self) -> None:
        self._closing.set()
        self.wait()
        self._work.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (wanted := self._work.get()) is not None:
            work, delay = wanted
            if delay:
                self._closing.wait(delay)
            try:
                done = work()
            except BaseException as error:
                done = partial(_raise, error)
            self._done.put(done)
            self._post(self._deliver)

    def _deliver(self) -> None:
        if not self._done.empty():  # otherwise ``wait`` was here first
            self._call(self._done.get())

    def _call(self, done: Callable[[], None]) -> None:
        self._open -= 1
        done()


def _raise(error: BaseException) -> None:
    raise error
