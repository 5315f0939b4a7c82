"""Guest thread: engines in the application's own trio run, without a thread of the kernel."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import trio

from kernel.contracts.engine import EngineEvent
from kernel.dispatcher.dispatcher import Dispatcher
from kernel.threads.engine_thread import EngineThread


class GuestThread(EngineThread):
    """Hosts engines while ``serve`` runs, which ``async with kernel`` starts and ends."""

    def __init__(self, name: str, dispatcher: Dispatcher, report: Callable[[EngineEvent], Any]) -> None:
        super().__init__(name, dispatcher, report)
        self._gone = threading.Event()
        # So that ``join`` returns at once if ``serve`` was never called.
        self._gone.set()

    def start(self) -> None:
        """Do nothing: the application's trio run calls ``serve``."""

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Host engines until the kernel is closed."""
        self._gone.clear()
        try:
            task_status.started()
            await self.run(own_thread=False)
        finally:
            self._gone.set()

    def join(self, timeout: float | None = None) -> bool:
        """Wait until ``serve`` has returned.  Must not be called in the thread in which it runs."""
        return self._gone.wait(timeout)
