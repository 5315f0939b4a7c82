"""Hearing of what is added to a journal: inotify, so that nobody looks again and again."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_MODIFY, _MOVED_TO, _CREATE = 0x2, 0x80, 0x100
_NONBLOCK = os.O_NONBLOCK | os.O_CLOEXEC  # inotify's own flags are the same numbers


class DirectoryWatch:
    """A descriptor that is readable when something in a directory was written, made or renamed (inotify(7))."""

    def __init__(self, directory: Path) -> None:
        """Raises ``OSError``."""
        library = ctypes.CDLL(None, use_errno=True)
        if not hasattr(library, "inotify_init1"):
            raise OSError(
                f"cannot watch {directory}: this system has no inotify, which following a journal takes"
            )
        self._fd: int = library.inotify_init1(_NONBLOCK)
        if self._fd < 0:
            raise _last_error(directory)
        if library.inotify_add_watch(self._fd, os.fsencode(directory), _MODIFY | _MOVED_TO | _CREATE) < 0:
            error = _last_error(directory)
            os.close(self._fd)
            raise error

    def fileno(self) -> int:
        """The descriptor, for a poller."""
        return self._fd

    def drain(self) -> None:
        """Forget what has happened so far."""
        try:
            while os.read(self._fd, 65536):
                pass
        except BlockingIOError:
            pass

    def close(self) -> None:
        """Watch no more."""
        os.close(self._fd)


def _last_error(directory: Path) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"cannot watch {directory}: {os.strerror(number)}")
