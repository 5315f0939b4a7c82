"""Read size: how many bytes to ask for in one read.  Few at a low data rate, many at a high one."""

from __future__ import annotations

READ_SIZE = 512 * 1024
"""Bytes asked for in one read at a high rate.  With 256 KiB there are more turns: messages of 1 KiB took 17 %
longer, those that a broker confirms 21 %.  1 MiB does not fit the cache, and they took 8 and 24 % longer."""

FIRST_READ_SIZE = 16 * 1024
"""Bytes asked for in one read at a low rate.  A large buffer for a small message costs an mmap and a
munmap."""

SMALLEST_READ = 4096
"""Bytes asked for in one read at least, however long the owner needs for them.  Shorter reads are not
timed."""

TURN_SECONDS = 0.005
"""Seconds that the owner of a connection may need for the bytes of one read.  Other engines wait
meanwhile."""


def fair_read_size(size: int, got: int, asked: int, seconds: float) -> int:
    """Return the new read size: it was ``size``, and a read of ``asked`` bytes has returned ``got``.

    It is no more than the owner can process in ``TURN_SECONDS``: it needed ``seconds`` for ``got`` bytes.
    512 KiB of equal AMQP messages take two milliseconds; as many of methods, or of messages with a different
    key each, take up to four tenths of a second.
    """
    # A full read: there is more.  Two such reads lead from the first size to the largest.
    following = min(4 * size, READ_SIZE) if got == asked else size
    # A clock that is too coarse for this read.
    if seconds <= 0:
        return following
    return min(following, max(SMALLEST_READ, int(got * TURN_SECONDS / seconds)))
