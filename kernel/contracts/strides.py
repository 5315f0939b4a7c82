"""Strides: consecutive messages of one size, which stand in a buffer at equal distances.

Most messages of a fast feed come so.  A codec that has read one of them tries whether the next ones differ
in their bodies only.  It estimates how many do (``count_repeats``), cuts the bodies of all of them out by
calls in C (``cut``), puts them together again and compares the result with the buffer: one comparison
of memory verifies a whole block.  With bodies of 100 octets it takes 16 ns to cut a message, and 20 to verify
it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, cycle
from struct import Struct

from kernel.contracts.message import Buffer

FIRST_BLOCK = 16
"""Messages in the first block that is verified at once.  After each success the next block is twice as
large: a flow that ends soon costs little, a steady one is verified with few comparisons."""
LARGEST_BLOCK = 1 << 16
"""Octets of a block at most: the bodies that are cut should still be in the cache when they are compared."""

_AT_ONCE = (64, 8)
"""Messages that one call cuts.  One by one they take 55 ns each, since there is a tuple for each; in eights
30, in sixty-fours 15."""
_MOST_CUTTERS = 1024

_cutters: dict[tuple[tuple[int, ...], int], Struct] = {}


def cut(data: Buffer, position: int, lengths: tuple[int, ...], count: int) -> list[bytes]:
    """Return what ``count`` messages from ``position`` on have in some places, one message after the other.

    ``lengths``: how many octets of a message are skipped, how many are taken, how many are skipped, and so
    on: ``(head, body, tail)`` for a body.  What is taken is copied.
    """
    fields: list[bytes] = []
    stride = sum(lengths)
    for times in _AT_ONCE:
        if count >= times:
            unpack = _cutter(lengths, times).unpack_from
            for _ in range(count // times):
                fields += unpack(data, position)
                position += times * stride
            count %= times
    if count:
        rest = memoryview(data)[position : position + count * stride]
        fields += chain.from_iterable(_cutter(lengths, 1).iter_unpack(rest))
    return fields


def _cutter(lengths: tuple[int, ...], times: int) -> Struct:
    # Without a lock, although connections in several threads share the table: each step is one operation of a
    # dictionary, and an entry that is lost between two of them is made again.
    cutter = _cutters.get((lengths, times))
    if cutter is None:
        # Peers choose these lengths.
        if len(_cutters) >= _MOST_CUTTERS:
            _cutters.clear()
        layout = "".join(f"{length}{kind}" for length, kind in zip(lengths, cycle("xs"), strict=False))
        cutter = _cutters[lengths, times] = Struct(layout * times)
    return cutter


def read_in_blocks(
    most: int,
    stride: int,
    expected: int,
    estimate: Callable[[int, int], int],
    take: Callable[[int, int], int],
) -> int:
    """Have up to ``most`` messages of ``stride`` octets taken, a block at a time; return how many were.

    ``expected``: how many to try first.  Both functions are called with the number of messages that were
    taken before, and with a number of messages behind those.  ``estimate`` returns how many of these may be
    like the first.  ``take`` verifies exactly so many and returns how many it has taken: all of them, fewer
    where the flow ends, and 0 if one of them differs.
    """
    limit = max(LARGEST_BLOCK // stride, 1)
    block = max(FIRST_BLOCK, min(expected, limit))
    done = 0
    while done < most:
        count = estimate(done, min(block, most - done))
        taken = 0
        while count and not (taken := take(done, count)):
            # A body happens to look like what is in front of a body, or a message is malformed: try fewer.
            count //= 4
        done += taken
        if taken < block:
            break
        block = min(2 * block, limit)
    return done


def count_repeats(data: bytes, position: int, prefix: bytes, stride: int, count: int) -> int:
    """Estimate how many of ``count`` messages have the prefix, if the flow changes only once."""
    return count_while(lambda at: data.startswith(prefix, position + at * stride), count)


def count_while(holds: Callable[[int], bool], count: int) -> int:
    """Return for how many of ``count`` messages, from number 0 on, something holds, if it changes only once.

    Found by bisection.  Where it changes more often, the answer is only an estimate.
    """
    if holds(count - 1):
        return count
    low = 0
    while low < count - 1:
        middle = (low + count) // 2
        if holds(middle - 1):
            low = middle
        else:
            count = middle
    return low
