"""Runs what concerns a journal's archive in a thread of its own, because an archive may take minutes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from plugins.engines.journal.archive_folder import Stopped
from plugins.engines.journal.archiving import archive_sealed
from plugins.engines.journal.lock import JournalBusy, compaction_lock
from plugins.protocols.journal_format.errors import JournalError


class Archiver:
    """Moves segments to the archive, then applies retention, each time that ``begin`` is called.

    ``delete_expired`` is retention; ``warn`` is called with a text for people.  Both are
    called in the thread.
    """

    def __init__(
        self,
        name: str,
        journal: Path,
        address: str,
        delete_expired: Callable[[], object],
        warn: Callable[[str], object],
    ) -> None:
        self.moved = self.failures = 0
        self.error = ""
        """Why nothing can be moved at present; empty if it can."""
        self._journal = journal
        self._address = address
        self._delete_expired = delete_expired
        self._warn = warn
        self._damaged: tuple[str, ...] = ()
        self._ending = threading.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"{name}-archiver")
        self._running: Future[None] | None = None

    def begin(self) -> None:
        """Do it in the other thread, unless that is still busy.  Raises what no archive is to blame for."""
        if self._running is not None:
            if not self._running.done():
                return
            self._running.result()
        self._running = self._thread.submit(self._run)

    def stop(self) -> None:
        """End the thread; a copy that is being made is abandoned.

        Blocks for as long as one request takes.
        """
        self._ending.set()
        self._thread.shutdown()

    def _run(self) -> None:
        try:
            with compaction_lock(self._journal):
                moved = archive_sealed(self._journal, self._address, going=lambda: not self._ending.is_set())
                self.moved += moved.segments
                # Told once, not every few seconds.
                for text in moved.damaged:
                    if text not in self._damaged:
                        self._warn(f"this segment stays in the directory, where it can be repaired: {text}")
                self._damaged = moved.damaged
                self._delete_expired()
        except (Stopped, JournalBusy):
            # Another time: the engine ends, or a compaction is at work.
            return
        except (JournalError, OSError) as error:
            self.failures += 1
            if str(error) != self.error:
                self._warn(
                    f"no segment is moved to the archive, and none deleted, until this is mended: {error}"
                )
            self.error = str(error)
            return
        if self.error:
            self.error = ""
            self._warn(f"{self._address}: segments are moved there again")
