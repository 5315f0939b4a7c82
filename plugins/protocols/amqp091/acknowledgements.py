"""Reads batches of basic.ack frames.

A consumer that acknowledges each message sends thousands of frames that differ only in the delivery tag.
Acknowledgements of consecutive tags become one event.
"""

from __future__ import annotations

from struct import Struct

from plugins.protocols.amqp091.events import Acknowledged, Event
from plugins.protocols.amqp091.frames import METHOD, frame_header

ACK = b"\x00\x3c\x00\x50"
# The frame header with class and method id, which only the channel changes; the delivery tag; and two octets,
# the bit field and the frame end.
_frame = Struct(">11sQH")
_SINGLE, _MULTIPLE = 0x00CE, 0x01CE
"""The bit field and the frame end, read as one number."""
# The same octets in parts: frame type, channel, payload size, ids, delivery tag; bit field and frame end.
_fields = Struct(">BHIIQH")
_IDS = int.from_bytes(ACK, "big")
_PAYLOAD = 13
"""Octets: the ids (4), the delivery tag (8) and the bit field (1)."""
FRAME_SIZE = _frame.size
"""Octets of a frame of basic.ack."""


def acknowledgement_frame(channel: int, delivery_tag: int, multiple: bool) -> bytes:
    """Return a frame of basic.ack."""
    return _frame.pack(_head(channel), delivery_tag, _MULTIPLE if multiple else _SINGLE)


def _head(channel: int) -> bytes:
    return frame_header.pack(METHOD, channel, _PAYLOAD) + ACK


def read_lone_acknowledgement(frame: bytes) -> tuple[int, int] | None:
    """Return channel and delivery tag, if these octets are basic.ack of one message.

    There are ``FRAME_SIZE`` octets.  None otherwise.

    Tag 0 and ``multiple`` are left to ``read_acknowledgements``, which gives them their meaning.
    """
    kind, channel, size, ids, tag, rest = _fields.unpack(frame)
    if kind == METHOD and size == _PAYLOAD and ids == _IDS and rest == _SINGLE and tag:
        return channel, tag
    return None


def read_acknowledgements(data: bytes, position: int, channel: int, events: list[Event]) -> int:
    """Read the well-formed acknowledgements of this channel; return the position behind them."""
    head = _head(channel)
    # A frame that is cut off at the end is left to the caller, which waits for the rest of it.
    whole = (len(data) - position) // _frame.size
    # The range of consecutive tags that is not reported yet.  ``first`` is 0 if there is none.
    first = last = 0
    for its_head, tag, rest in _frame.iter_unpack(
        memoryview(data)[position : position + whole * _frame.size]
    ):
        # Type, channel, payload size and ids in one comparison.  Another channel ends the batch, too: the
        # caller has checked the state of this channel only.
        if its_head != head:
            break
        # Tag 0 has a meaning only together with ``multiple``; it is reported alone, for the owner to judge.
        if rest == _SINGLE and tag:
            if tag == last + 1 and first:
                last = tag
            else:
                if first:
                    events.append(Acknowledged(channel, first, last, False))
                first = last = tag
        # A multiple acknowledgement must not be merged: it covers tags below its own.  What came before it is
        # reported first, to keep the order.
        elif rest in (_SINGLE, _MULTIPLE):
            if first:
                events.append(Acknowledged(channel, first, last, False))
                first = 0
            events.append(Acknowledged(channel, tag, tag, rest == _MULTIPLE))
        # Another bit, or a wrong frame end: the caller reads this frame alone, with all checks.
        else:
            break
        position += _frame.size
    if first:
        events.append(Acknowledged(channel, first, last, False))
    return position
