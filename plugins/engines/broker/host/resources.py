"""Resources: how much memory there is, and how much of it is taken, as the operating system says."""

from __future__ import annotations

import contextlib
import os
import re
from struct import Struct

# Version 2 of control groups and version 1.  A container sees its own group at the root.
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_RUSAGE_INFO_V0 = 0
_MAC_USAGE = Struct("=64xQ24x")
"""``struct rusage_info_v0`` of macOS (``sys/resource.h``), of which the resident memory is read."""


def octets(limit: int | str, whole: int) -> int:
    """Return a limit in octets, given in octets or as a share (``"40%"``) of ``whole``.

    ``ValueError`` for anything else.
    """
    if isinstance(limit, int):
        if limit < 0:
            raise ValueError(f"{limit} is less than nothing")
        return limit
    share = re.fullmatch(r"(\d{1,3})%", limit)
    if share is None or int(share[1]) > 100:
        raise ValueError(f"{limit!r} is neither a number of bytes nor a share from '0%' to '100%'")
    return whole * int(share[1]) // 100


def machine_memory() -> int:
    """Return how many octets of memory this process may use: the machine's, or its control group's."""
    memory = os.sysconf("SC_PHYS_PAGES") * _PAGE
    for path in _CGROUP_LIMITS:
        # No limit is the word "max" in version 2, and in version 1 a number above all memory.
        with contextlib.suppress(OSError, ValueError), open(path) as file:
            memory = min(memory, int(file.read()))
    return memory


def resident_memory() -> int:
    """Return the octets of memory that this process has; ``OSError`` if the system does not tell."""
    try:
        with open("/proc/self/statm") as file:
            # The second field is the resident pages (proc(5)).
            return int(file.read().split()[1]) * _PAGE
    except FileNotFoundError as error:
        try:
            return _mac_resident_memory()
        except AttributeError:
            # Linux without /proc: the alarm says that it cannot be read.
            raise error from None


def _mac_resident_memory() -> int:
    # Not ``getrusage``, which has only the most that it ever was: an alarm would never end.
    import ctypes

    usage = ctypes.create_string_buffer(_MAC_USAGE.size)
    if ctypes.CDLL(None).proc_pid_rusage(os.getpid(), _RUSAGE_INFO_V0, usage) != 0:
        raise OSError("proc_pid_rusage does not tell the memory of this process")
    (resident,) = _MAC_USAGE.unpack(usage.raw)
    return int(resident)


def give_memory_back() -> None:
    """Have the C library return to the system what was freed."""
    # glibc returns only the top of its heap by itself.  Freed bodies below one that is still used stay
    # resident, and the memory alarm would stay raised although the queues are empty.
    import ctypes  # takes milliseconds to import, and only a broker that is full uses it

    with contextlib.suppress(OSError, AttributeError):  # musl has no malloc_trim
        ctypes.CDLL(None).malloc_trim(0)
