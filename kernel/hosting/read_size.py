"""How many bytes to ask for in one read: few while the flow is thin, many while it is thick."""

from __future__ import annotations

READ_SIZE = 256 * 1024
"""Bytes asked for in one read of a thick flow.  Fewer cost calls, more leave the cache."""

FIRST_READ_SIZE = 16 * 1024
"""Bytes asked for in one read of a thin flow: a large buffer for a small message costs an mmap and a munmap."""

SMALLEST_READ = 4096
"""Bytes asked for in one read, however long the owner needs for them.  Shorter reads are not timed."""

TURN_SECONDS = 0.005
"""How long the neighbours of a connection may have to wait for what one of its reads brings."""


def next_read_size(size: int, got: int, asked: int) -> int:
    """Return how many bytes to ask for from now on: it was ``size``, and a read of ``asked`` has given ``got``."""
    if got == asked:
        return min(4 * size, READ_SIZE)
    return FIRST_READ_SIZE if got < FIRST_READ_SIZE // 4 else size


def fair_read_size(size: int, got: int, asked: int, seconds: float) -> int:
    """Do the same, and ask for no more than the owner deals with in ``TURN_SECONDS``: it needed ``seconds`` for ``got``.

    256 KiB of equal AMQP messages take a millisecond; of methods, or of messages with a key each, a fifth of a second.
    """
    following = next_read_size(size, got, asked)
    if seconds <= 0:
        return following
    return min(following, max(SMALLEST_READ, int(got * TURN_SECONDS / seconds)))
