"""KeyedBatches: makes one batch of messages with basic.publish that differ in their routing keys.

A feed in which each message has a key of its own would be a batch, an envelope and a template for each
message (``published_batches.py``): 9 us from the socket to a consumer's socket.  Here only what differs
is read of each message: the key, the size and the body.  Everything else is compared with the template
of a message before.

How it works:

1. Octets of a message: method frame up to the key, which are constant but for the two sizes of the key;
   the key; ``middle``, up to the body size; that size; ``tail``, up to the size of the body frame; that
   size; the body; 0xCE.
2. When two messages in a row have the same sizes, the next ones probably have them, too (order numbers of
   fixed width).  ``_read_stride`` then cuts the rest of the buffer at equal distances, in C, and verifies a
   block with one comparison of memory.

The reader stops at the first message that is not exactly as expected, and when the same key comes again and
again: such messages are a batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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

    __slots__ = ("envelope", "envelope_of", "heads", "key_at", "middle", "tail", "unpack")

    def __init__(self, template: Template, envelopes: Envelopes) -> None:
        method = template.method
        self.key_at = _KEY_SIZE_AT + method[_KEY_SIZE_AT - 1]
        """Where the length of the key is in the method frame."""
        self.heads = _Heads(method, self.key_at)
        self.middle = method[-2:] + template.header
        """From behind the key: the flags, the end of the frame, and the content header up
        to the body size."""
        self.tail = template.tail
        self.unpack: Callable[[bytes, int], tuple[Any, ...]] = cached_struct(
            f">{len(self.middle)}sQ{len(self.tail)}sI"
        ).unpack_from
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


class _Heads(dict[int, bytes]):
    """By the size of the key: the octets of the method frame in front of it."""

    __slots__ = ("_fixed", "_kind")

    def __init__(self, method: bytes, key_at: int) -> None:
        super().__init__()
        self._kind = method[0], int.from_bytes(method[1:3], "big")
        self._fixed = method[7:key_at]

    def __missing__(self, size: int) -> bytes:
        # Behind the key come the flags.  There are at most 256 sizes.
        payload = len(self._fixed) + 1 + size + 1
        head = self[size] = frame_header.pack(*self._kind, payload) + self._fixed + bytes((size,))
        return head


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
        end = len(data)
        starts = data.startswith
        key_at, heads, middle, tail, unpack = flow.key_at, flow.heads, flow.middle, flow.tail, flow.unpack
        behind_key = len(middle) + len(tail) + 12
        keys: list[bytes] = []
        bodies: list[bytes] = []
        total = repeats = 0
        last_key = b""
        last_size = -1
        while True:
            at = position + key_at
            if at >= end:
                break
            start = at + 1
            stop = start + data[at]
            body_at = stop + behind_key
            if body_at > end or not starts(heads[stop - start], position):
                break
            its_middle, size, its_tail, frame_size = unpack(data, stop)
            following = body_at + size
            if (
                its_middle != middle
                or its_tail != tail
                or size != frame_size
                or following >= end
                or data[following] != END
                or not 0 < size <= maximum
            ):
                break
            key = data[start:stop]
            if key == last_key:
                repeats += 1
                # The other path makes one batch of messages with one key, which is cheaper.
                if repeats >= _REPEATS:
                    break
            else:
                repeats = 0
            keys.append(key)
            bodies.append(data[body_at:following])
            total += size
            position = following + 1
            if size == last_size and len(key) == len(last_key):
                before = len(keys)
                position = self._read_stride(
                    data, position, heads[len(key)], data[stop:body_at], size, keys, bodies
                )
                total += size * (len(keys) - before)
                last_size = -1
            else:
                last_size = size
            last_key = key
        if not keys:
            return None, position
        if len(keys) == 1:
            key = keys[0]
            envelope = flow.envelope_of(key.decode("utf-8", "surrogateescape"))
            return Batch(bodies, total, envelope, False, total), position
        width = len(bodies[0]) if len(set(map(len, bodies))) == 1 else 0
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
