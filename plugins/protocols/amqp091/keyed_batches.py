"""KeyedBatches: makes one batch of messages with basic.publish that differ in their routing keys.

A feed in which each message has a key of its own would be a batch, an envelope and a template for each
message (``published_batches.py``): 9 us from the socket to a consumer's socket.  Here only what differs
is read of each message: the key, the size and the body.  Everything else is compared with the template
of a message before.

How it works:

1. Octets of a message: method frame up to the key, which are constant but for the two sizes of the key;
   the key; ``middle``, up to the body size; that size; ``tail``, up to the size of the body frame; that
   size; the body; 0xCE.  Keys of one size have one ``Struct`` for all up to the body.
2. When two messages in a row have the same sizes, the next ones probably have them, too (order numbers of
   fixed width).  ``_read_stride`` then cuts the rest of the buffer at equal distances, in C, and verifies a
   block with one comparison of memory.

The reader stops at the first message that is not exactly as expected, and when the same key comes again and
again: such messages are a batch.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import error as StructError
from typing import TypeAlias

from kernel.contracts.message import Batch, Envelope
from kernel.contracts.mixed_batch import KeyedBatch
from kernel.contracts.strides import count_repeats, cut, read_in_blocks
from plugins.protocols.amqp091.envelopes import Envelopes
from plugins.protocols.amqp091.frames import END, END_OCTET, frame_header
from plugins.protocols.amqp091.templates import MAXIMUM_TEMPLATES, Template, cached_struct

_KEY_SIZE_AT = 14
"""Where the length of the exchange's name is in a method frame with basic.publish."""
_MOST_FLOWS = 16
_REPEATS = 3
"""So often may a key follow itself until the reader stops."""


class _Flow:
    """What messages have in common that differ in their keys only."""

    __slots__ = ("envelope", "envelope_of", "key_at", "middle", "shapes", "tail")

    def __init__(self, template: Template, envelopes: Envelopes) -> None:
        method = template.method
        self.key_at = _KEY_SIZE_AT + method[_KEY_SIZE_AT - 1]
        """Where the length of the key is in the method frame."""
        self.middle = method[-2:] + template.header
        """From behind the key: the flags, the end of the frame, and the content header up
        to the body size."""
        self.tail = template.tail
        self.shapes = _Shapes(method, self.key_at, len(self.middle), len(self.tail))
        raw = template.tail[:-4]  # what follows the properties is that of ``header_parts``
        self.envelope: Envelope = envelopes.under_another_key(template.envelope, "", raw)
        self.envelope_of: Callable[[str], Envelope] = _EnvelopesByKey(
            envelopes, template.envelope, raw
        ).__getitem__


class _EnvelopesByKey(dict[str, Envelope]):
    """Envelopes of keys that were met in messages that had to be divided.

    One without a call for those that repeat.
    """

    __slots__ = ("_envelopes", "_other", "_raw")

    def __init__(self, envelopes: Envelopes, other: Envelope, raw: bytes) -> None:
        super().__init__()
        self._envelopes = envelopes
        self._other = other
        self._raw = raw

    def __missing__(self, key: str) -> Envelope:
        if len(self) >= MAXIMUM_TEMPLATES:
            self.clear()
        envelope = self[key] = self._envelopes.under_another_key(self._other, key, self._raw)
        return envelope


_Unpack: TypeAlias = "Callable[[bytes, int], tuple[bytes, bytes, bytes, int, bytes, int]]"


class _Shapes(dict[int, "tuple[_Unpack, bytes]"]):
    """By the size of the key: what divides all octets in front of the body, and those in front of the key."""

    __slots__ = ("_fixed", "_format", "_kind")

    def __init__(self, method: bytes, key_at: int, middle: int, tail: int) -> None:
        super().__init__()
        self._kind = method[0], int.from_bytes(method[1:3], "big")
        self._fixed = method[7:key_at]
        self._format = f">{key_at + 1}s%ds{middle}sQ{tail}sI"

    def __missing__(self, size: int) -> tuple[_Unpack, bytes]:
        # Behind the key come the flags.  There are at most 256 sizes.
        payload = len(self._fixed) + 1 + size + 1
        head = frame_header.pack(*self._kind, payload) + self._fixed + bytes((size,))
        shape = self[size] = cached_struct(self._format % size).unpack_from, head
        return shape


class KeyedBatches:
    """Reads messages that differ in their keys."""

    def __init__(self, envelopes: Envelopes) -> None:
        self._envelopes = envelopes
        self._flows: dict[tuple[bytes, ...], _Flow] = {}
        self._expected = 0
        """Messages of the last stride: in a steady flow the next one is about as long."""

    def forget(self) -> None:
        """Drop what is known, because a channel has ended."""
        self._flows.clear()

    def read(self, data: bytes, position: int, template: Template, maximum: int) -> tuple[Batch | None, int]:
        """Read messages like those of ``template`` from ``position`` on.

        Return them, and the position behind them.

        ``maximum``: octets of the largest body.  A keyed batch; a batch for a single message;
        None: there is none.
        """
        flow = self._flow_of(template)
        key_at, middle, tail, shapes = flow.key_at, flow.middle, flow.tail, flow.shapes
        # Octets in front of the body, without the key.
        besides = key_at + 1 + len(middle) + len(tail) + 12
        keys: list[bytes] = []
        bodies: list[bytes] = []
        add_key, add_body = keys.append, bodies.append
        repeats = 0
        last_key = b""
        last_size = -1
        while True:
            try:
                width = data[position + key_at]
                unpack, head = shapes[width]
                its_head, key, its_middle, size, its_tail, frame_size = unpack(data, position)
                body_at = position + besides + width
                following = body_at + size
                end = data[following]
            except (IndexError, StructError):
                # It is not complete.
                break
            if (
                its_head != head
                or its_middle != middle
                or its_tail != tail
                or size != frame_size
                or end != END
                or not 0 < size <= maximum
            ):
                break
            if key == last_key:
                repeats += 1
                # The other path makes one batch of messages with one key, which is cheaper.
                if repeats >= _REPEATS:
                    break
            else:
                repeats = 0
            add_key(key)
            add_body(data[body_at:following])
            position = following + 1
            if size == last_size and width == len(last_key):
                front = data[body_at - len(middle) - len(tail) - 12 : body_at]
                position = self._read_stride(data, position, head, front, size, keys, bodies)
                last_size = -1
            else:
                last_size = size
            last_key = key
        if not keys:
            return None, position
        sizes = list(map(len, bodies))
        total = sum(sizes)
        if len(keys) == 1:
            envelope = flow.envelope_of(keys[0].decode("utf-8", "surrogateescape"))
            return Batch(bodies, total, envelope, False, total), position
        width = sizes[0] if sizes.count(sizes[0]) == len(sizes) else 0
        return KeyedBatch(
            bodies, total, flow.envelope, False, width, keys=keys, envelope_of=flow.envelope_of
        ), position

    def _flow_of(self, template: Template) -> _Flow:
        method = template.method
        key_at = _KEY_SIZE_AT + method[_KEY_SIZE_AT - 1]
        # Everything but the key, which may be a new one each time.
        what = (method[:3], method[7:key_at], method[-2:], template.tail)
        flow = self._flows.get(what)
        if flow is None:
            if len(self._flows) >= _MOST_FLOWS:
                self._flows.clear()
            flow = self._flows[what] = _Flow(template, self._envelopes)
        return flow

    def _read_stride(
        self,
        data: bytes,
        position: int,
        head: bytes,
        middle: bytes,
        size: int,
        keys: list[bytes],
        bodies: list[bytes],
    ) -> int:
        """Read the messages that follow with a key as long as the last one and a body of ``size``.

        Return the position.

        ``head``: what is in front of each key; ``middle``: what is between it and the body.
        """
        width = len(keys[-1])
        stride = len(head) + width + len(middle) + size + 1
        lengths = (len(head), width, len(middle), size, 1)
        separator = END_OCTET + head

        def estimate(done: int, count: int) -> int:
            # The same key again and again: the other path takes those.
            if done and len(set(keys[-_REPEATS - 1 :])) == 1:
                return 0
            return count_repeats(data, position + done * stride, head, stride, count)

        def take(done: int, count: int) -> int:
            start = position + done * stride
            # What was cut is put together again, as in ``strides.py``.
            parts = [separator, b"", middle, b""] * count
            fields = cut(data, start, lengths, count)
            parts[1::4] = cut_keys = fields[::2]
            parts[3::4] = cut_bodies = fields[1::2]
            # Without the end octet of the message before, and that of the last one.
            parts[0] = head
            if data[start + count * stride - 1] != END or not data.startswith(b"".join(parts), start):
                return 0
            keys.extend(cut_keys)
            bodies.extend(cut_bodies)
            return count

        left = (len(data) - position) // stride
        self._expected = read_in_blocks(left, stride, self._expected, estimate, take)
        return position + self._expected * stride
