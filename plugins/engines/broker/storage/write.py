"""Write: one attempt to write a group, in the writer's thread."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

from plugins.engines.broker.storage.files import Files, Writable
from plugins.engines.broker.storage.group import Group
from plugins.engines.broker.storage.segment import Segment


class Write:
    """What is to be written, and the result.

    Used by one thread at a time: the broker's, the writer's, the broker's.
    """

    def __init__(
        self,
        files: Files,
        group: Group,
        segment: Segment,
        file: Writable | None,
        head: Group | None,
        removals: list[Segment],
        *,
        before: Writable | None,
        sync: bool,
    ) -> None:
        """``head``: the first records of a new segment.

        None: the segment exists, and ``file`` is open for it.

        ``before``: the file of the segment before a new one; it is synced and closed first.
        ``removals``: segments to delete, in this order, after the group is written.
        """
        self.group = group
        self.segment = segment
        self.file = file
        self.head = head
        self.removals = removals
        self.error: OSError | None = None
        self.seconds = 0.0
        self.note: Callable[[], None] | None = None
        """Writes into the inventory which segments there are after this write; see ``inventory.py``."""
        self._before = before
        self._files = files
        self.sync = sync

    def run(self, done: Callable[[Write], Any]) -> Callable[[], None]:
        """Write; return a function to call in the broker's thread."""
        began = monotonic()
        try:
            self._write()
        except OSError as error:
            self.error = error
            self._undo()
        else:
            self._remove()
        self.seconds = monotonic() - began
        return lambda: done(self)

    def _write(self) -> None:
        chunks = self.group.chunks
        self._end_last_segment()
        if self.head is not None:
            self.file = self._files.create(self.segment.name)
            chunks = self.head.chunks + chunks
        assert self.file is not None, "an existing segment has an open file"
        # A group has a header and a payload for each record, so thousands of chunks.  One copy costs less
        # than a system call for each 1,024 of them (``IOV_MAX``).
        self.file.write(b"".join(chunks))
        if self.sync:
            self.file.sync()
            if self.head is not None:
                # A new file whose name is not on the disk is lost with all its contents.
                self._files.sync_directory()
        if self.note is not None:
            self.note()

    def _end_last_segment(self) -> None:
        # Taken away first, so that nobody closes the file a second time.
        before, self._before = self._before, None
        if before is not None:
            try:
                # The zeros are cut off before the sync, so that the size of the finished segment is durable,
                # too.
                before.end()
                # Recovery takes octets that are no record at the end of the last segment for an interrupted
                # write.  In an earlier segment they are damage.  So a segment has to be whole on the disk
                # before the next one begins.
                if self.sync:
                    before.sync()
            finally:
                before.close()

    def _undo(self) -> None:
        """Remove what a failed write has left.

        If that fails as well, what is left does no harm (see ``log``).
        """
        try:
            if self.file is not None:
                # The file is not used again, whatever went wrong: see "When a write fails" in ``log``.
                self.file.close()
            if self.head is not None:
                self._files.remove(self.segment.name)
            else:
                # ``size`` is the end of the last group that was written whole; the log changes it only after
                # a success.
                self._files.truncate(self.segment.name, self.segment.size)
        except OSError:
            return

    def _remove(self) -> None:
        try:
            # From the oldest on (rule 2 in ``log``), and each one taken off the list only when it is deleted:
            # what is left is tried again in this order.
            while self.removals:
                self._files.remove(self.removals[0].name)
                del self.removals[0]
        except OSError:
            return  # the log tries again with the next group
