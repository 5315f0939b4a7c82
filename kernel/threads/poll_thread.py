"""Poll thread: an operating system thread that runs trio and hosts engines."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import trio

from kernel.contracts.engine import EngineEvent
from kernel.dispatcher.dispatcher import Dispatcher
from kernel.hosting.forking import hold_while_forking
from kernel.threads.allocator import keep_freed_memory
from kernel.threads.engine_thread import EngineThread
from kernel.threads.options import PollThreadOptions


class PollThread(EngineThread):
    """In order: ``start``, ``add`` and ``remove``, ``stop`` or ``linger``, ``join``."""

    def __init__(
        self,
        name: str,
        dispatcher: Dispatcher,
        report: Callable[[EngineEvent], Any],
        options: PollThreadOptions | None = None,
    ) -> None:
        super().__init__(name, dispatcher, report)
        self._options = options or PollThreadOptions()
        self.crash: BaseException | None = None
        self._thread = threading.Thread(target=self._main, name=f"kernel {name}", daemon=True)

    def start(self) -> None:
        """Begin to host."""
        keep_freed_memory()
        hold_while_forking(self, PollThread._pause)
        self._thread.start()

    def _pause(self, pause: Callable[[], Any]) -> bool:
        if not self._thread.is_alive() or self._thread is threading.current_thread():
            return False
        self.mailbox.post(pause)
        return True

    def join(self, timeout: float | None = None) -> bool:
        """Wait until the thread is gone; False when it is not in ``timeout`` seconds."""
        # A thread that was never started cannot be joined.
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def _main(self) -> None:
        try:
            if self._options.cpus and hasattr(os, "sched_setaffinity"):
                os.sched_setaffinity(0, self._options.cpus)  # 0: this thread
            trio.run(self._run)
        except BaseException as error:
            # An engine's failure never gets here (``supervise``). This is a fault of the kernel, of trio or
            # of an instrument: no engine of this thread runs any more, so operators are told.
            self.crash = error
            self._report(EngineEvent(engine=self.name, what="thread crashed", detail=repr(error)))

    async def _run(self) -> None:
        await self.run(own_thread=True, spin=self._options.spin)
