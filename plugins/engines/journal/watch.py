"""Notices that a journal has grown, so that readers that follow it need not look all the time.

Linux tells it (inotify).  On systems without inotify, such as macOS, a thread looks at the directory.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from pathlib import Path
from typing import Protocol as Interface

_MODIFY, _MOVED_TO, _CREATE = 0x2, 0x80, 0x100
_NONBLOCK = os.O_NONBLOCK | os.O_CLOEXEC  # IN_NONBLOCK and IN_CLOEXEC have the same values (inotify_init(2))

_LOOK = 0.1
"""Seconds between two looks, without inotify."""


class DirectoryWatch(Interface):
    """A descriptor that is readable after a file in a directory was written, created or renamed."""

    def fileno(self) -> int:
        """Return the descriptor, for a poller."""
        ...

    def drain(self) -> None:
        """Discard the events so far: the descriptor is readable again after the next one."""
        ...

    def close(self) -> None:
        """Close the descriptor."""
        ...


def watch_directory(directory: Path) -> DirectoryWatch:
    """Watch a directory from now on.  Raises ``OSError`` if there is none."""
    # Python's library has no inotify; the C library that the interpreter has loaded may have it.
    library = ctypes.CDLL(None, use_errno=True)
    return _Inotify(directory, library) if hasattr(library, "inotify_init1") else _Looks(directory)


class _Descriptor:
    """What both have in common."""

    def __init__(self, descriptor: int) -> None:
        self._fd = descriptor

    def fileno(self) -> int:
        return self._fd

    def drain(self) -> None:
        # Which files changed is of no interest: the reader looks at the index anyhow.
        with contextlib.suppress(BlockingIOError):
            while os.read(self._fd, 65536):
                pass

    def close(self) -> None:
        os.close(self._fd)


class _Inotify(_Descriptor):
    """Told by Linux."""

    def __init__(self, directory: Path, library: ctypes.CDLL) -> None:
        super().__init__(library.inotify_init1(_NONBLOCK))
        if self._fd < 0:
            raise _last_error(directory)
        # The index of the last segment is written with each commit, a new segment is created, and a compacted
        # index is renamed into place.
        if library.inotify_add_watch(self._fd, os.fsencode(directory), _MODIFY | _MOVED_TO | _CREATE) < 0:
            error = _last_error(directory)
            self.close()
            raise error


class _Looks(_Descriptor):
    """Looks ten times a second, in a thread of its own, and writes to a pipe when something has changed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._seen = self._look()
        reading, self._writing = os.pipe()
        super().__init__(reading)
        os.set_blocking(reading, False)
        os.set_blocking(self._writing, False)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="kernel journal watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        super().close()
        os.close(self._writing)

    def _watch(self) -> None:
        while not self._ended.wait(_LOOK):
            try:
                seen = self._look()
            except OSError:
                # Deleted: the reader finds out by itself.
                seen = {}
            if seen != self._seen:
                self._seen = seen
                # Nobody has read the last 64 KiB of changes: the descriptor is readable anyhow.
                with contextlib.suppress(BlockingIOError):
                    os.write(self._writing, b"!")

    def _look(self) -> dict[str, tuple[int, int]]:
        """Return size and time of change of each file."""
        found = {}
        with os.scandir(self._directory) as entries:
            for entry in entries:
                # A file may be deleted between the two calls.
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat()
                    found[entry.name] = status.st_size, status.st_mtime_ns
        return found


def _last_error(directory: Path) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"cannot watch {directory}: {os.strerror(number)}")
