"""Writer: the thread in which a store writes and waits for the disk, so that the broker's thread does not.

The interpreter's lock is free while this thread writes and syncs.  A log submits one write at a time: what
comes meanwhile is the next group.  The two logs of a store share the thread.

The result of each piece of work is a function for the broker's thread.  It travels through ``_done``, and
``post`` only wakes the broker's thread.  So there are two ways to deliver it: ``_deliver``, when the broker's
thread comes round, and ``wait``, when it cannot go on without.  Both take from the same queue in order, and
each result is delivered once.
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
        # Before ``wait``, which would otherwise wait for the delays.
        self._closing.set()
        self.wait()
        self._work.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (wanted := self._work.get()) is not None:
            work, delay = wanted
            if delay:
                # Not ``sleep``: when the store is closed, the next attempt is made at once.
                self._closing.wait(delay)
            try:
                done = work()
            # Work handles ``OSError`` itself.  Anything else is a fault of the program.  It is raised in the
            # broker's thread, which ends the engine; if it ended this thread, ``wait`` would never return.
            except BaseException as error:
                done = partial(_raise, error)
            self._done.put(done)
            self._post(self._deliver)

    def _deliver(self) -> None:
        # ``wait`` may have taken the result after it was posted.
        if not self._done.empty():
            self._call(self._done.get())

    def _call(self, done: Callable[[], None]) -> None:
        # Before the call: the function may submit the next piece of work, and may raise.
        self._open -= 1
        done()


def _raise(error: BaseException) -> None:
    raise error
