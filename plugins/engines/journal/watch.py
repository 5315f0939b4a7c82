"""Notices with inotify that a journal has grown, so that readers that follow it need not poll."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_MODIFY, _MOVED_TO, _CREATE = 0x2, 0x80, 0x100
_NONBLOCK = os.O_NONBLOCK | os.O_CLOEXEC  # IN_NONBLOCK and IN_CLOEXEC have the same values (inotify_init(2))


class DirectoryWatch:
    """A descriptor that is readable after a file in a directory was written, created or renamed."""

    def __init__(self, directory: Path) -> None:
        """Watch ``directory``.  Raises ``OSError``, also on a system without inotify."""
        # Python's library has no inotify; the C library that the interpreter has loaded does.
        library = ctypes.CDLL(None, use_errno=True)
        if not hasattr(library, "inotify_init1"):
            raise OSError(
                f"cannot watch {directory}: following a journal needs inotify, which this system does not have"
            )
        self._fd: int = library.inotify_init1(_NONBLOCK)
        if self._fd < 0:
            raise _last_error(directory)
        # The index of the last segment is written with each commit, a new segment is created, and a compacted
        # index is renamed into place.
        if library.inotify_add_watch(self._fd, os.fsencode(directory), _MODIFY | _MOVED_TO | _CREATE) < 0:
            error = _last_error(directory)
            os.close(self._fd)
            raise error

    def fileno(self) -> int:
        """Return the descriptor, for a poller."""
        return self._fd

    def drain(self) -> None:
        """Discard the events so far: the descriptor is readable again after the next one."""
        try:
            # Which files changed is of no interest: the reader looks at the index anyhow.
            while os.read(self._fd, 65536):
                pass
        except BlockingIOError:
            pass

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._fd)


def _last_error(directory: Path) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"cannot watch {directory}: {os.strerror(number)}")
