"""Frames of messages of one size that have consecutive delivery tags: made at once.

A delivery tag stands in the middle of each message, so that a join with a constant separator is not enough.
It is nearly enough: the messages are joined with the tag of the first one, and then the octets of the tags
that differ are written over them, a column at a time (an extended slice).  That is one column for most
batches, the last octet, and two for those of more than 256 messages.

Measured with bodies of 100 octets: 18 ns a message in large batches, 50 in batches of 32.  To ``pack`` each
message took 100 and 125.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernel.contracts.message import Buffer
from plugins.protocols.amqp091.frames import END_OCTET

_ALL_OCTETS = bytes(range(256))


def tagged_frames(
    before: bytes, first_tag: int, behind: bytes, bodies: Sequence[Buffer], width: int
) -> bytearray:
    """Return the frames of messages with tags from ``first_tag`` on, and bodies of ``width`` octets.

    ``before`` and ``behind``: what each has in front of its tag, and between its tag and its body.
    """
    head = before + first_tag.to_bytes(8, "big") + behind
    # One end octet too many in front, and one head too many behind: to cut them off costs nothing.
    frames = bytearray(END_OCTET + head).join((b"", *bodies, b""))
    del frames[:1]
    del frames[-len(head) :]
    write_tags(frames, len(before), len(head) + width + 1, first_tag, len(bodies))
    return frames


def write_tags(frames: bytearray, position: int, stride: int, first_tag: int, count: int) -> None:
    """Write consecutive tags into frames that have the first one in all these places."""
    column = position + 7
    lowest = first_tag & 255
    frames[column::stride] = (_ALL_OCTETS * ((lowest + count + 255) >> 8))[lowest : lowest + count]
    stop = first_tag + count
    shift = 8
    # The next octet differs only where a tag of the batch is a multiple of 256, the one before of 65,536 ...
    while first_tag >> shift != (stop - 1) >> shift:
        column -= 1
        frames[column::stride] = b"".join(
            bytes((high & 255,)) * (min(stop, (high + 1) << shift) - max(first_tag, high << shift))
            for high in range(first_tag >> shift, ((stop - 1) >> shift) + 1)
        )
        shift += 8
