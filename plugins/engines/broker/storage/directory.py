"""Directory: the files of a store.

The broker that uses the directory has locked ``lock``.  ``marker`` has the octets with which each record
begins, and says which segments there are (``inventory.py``).  ``000000000001.log`` and its successors are the
durable log.  ``paged/`` has the overflow log.
"""

from __future__ import annotations

from pathlib import Path

from kernel.hosting.disk import FileLock, Locked
from plugins.engines.broker.storage.recovery import CannotOpen


def lock_directory(directory: Path) -> FileLock:
    """Lock a directory; raise ``CannotOpen`` if another broker uses it."""
    try:
        return FileLock(directory / "lock")
    except Locked as holder:
        raise CannotOpen(
            f"{directory}: another broker uses this directory ({holder}); "
            "stop that one, or give this one a data_dir of its own"
        ) from None
