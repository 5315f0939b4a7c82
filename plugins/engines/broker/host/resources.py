"""Resources: how much memory there is, and how much of it is taken, as the operating system says."""

from __future__ import annotations

import contextlib
import os
import re
import resource

_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_PAGE = os.sysconf("SC_PAGE_SIZE")


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
    """Return the octets of memory that this process may use: the machine's, or what its control group allows."""
    memory = os.sysconf("SC_PHYS_PAGES") * _PAGE
    for path in _CGROUP_LIMITS:
        with contextlib.suppress(OSError, ValueError), open(path) as file:  # "max": no limit
            memory = min(memory, int(file.read()))
    return memory


def resident_memory() -> int:
    """Return the octets of memory that this process has.

    The most that it ever had where the system tells no better.
    """
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * _PAGE
    except FileNotFoundError:  # macOS, which counts in octets
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def give_memory_back() -> None:
    """Have the C library return to the system what was freed: it keeps it where something in between is still used."""
    import ctypes  # costs milliseconds, and is used by a broker that is full

    with contextlib.suppress(OSError, AttributeError):  # not every C library has this
        ctypes.CDLL(None).malloc_trim(0)
