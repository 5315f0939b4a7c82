"""Encoding whole batches with basic.publish, basic.deliver, basic.get-ok and basic.return.

What a batch's messages have in common is put together once; then one C loop makes all of a batch's frames.
Bodies of more than COPY_LIMIT octets go out by reference, and those that do not fit into one frame are
cut without a copy.

Measured as in published_batches.py: publish 0.013 us, deliver 0.09 us a message in batches of one size, about 0.2
where sizes are mixed, 0.6 where each message is a batch of its own.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from typing import TypeAlias

from kernel.contracts.errors import LocalProtocolError
from kernel.contracts.message import Batch, Buffer, Envelope
from plugins.protocols.amqp091.content import raw_properties
from plugins.protocols.amqp091.errors import CannotCarry
from plugins.protocols.amqp091.fields import short_string
from plugins.protocols.amqp091.frames import BODY, END, END_OCTET, HEADER, METHOD, OVERHEAD, frame_header
from plugins.protocols.amqp091.methods import basic
from plugins.protocols.amqp091.templates import MAXIMUM_TEMPLATES, cached_struct

COPY_LIMIT = 4096
"""Up to here copying a body costs less than one more buffer to write."""

_DELIVER = b"\x00\x3c\x00\x3c"
_PUBLISH = b"\x00\x3c\x00\x28\x00\x00"


Delivery: TypeAlias = tuple[str, int, bool, Batch]
"""Consumer tag, delivery tag of the first message, whether they are redelivered, and the messages."""

NotCarried: TypeAlias = tuple[int, str]
"""The first delivery tag of a batch that was left out, and why."""


class Prefix:
    """What precedes each body of one flow: constant octets around a delivery tag and the body size."""

    __slots__ = ("after", "before", "between", "channel", "pack")

    def __init__(self, channel: int, before: bytes, rest_of_method: bytes, raw: bytes) -> None:
        self.channel = channel
        self.before = before
        """Up to the delivery tag (all of the method frame where there is none)."""
        header = frame_header.pack(HEADER, channel, 12 + len(raw)) + b"\x00\x3c\x00\x00"
        self.between = rest_of_method + header
        self.after = raw + END_OCTET + bytes((BODY,)) + channel.to_bytes(2, "big")
        """From behind the body size to the size of the body frame."""
        layout = f">{len(before)}sQ{len(self.between)}sQ{len(self.after)}sI"
        self.pack: Callable[..., bytes] = cached_struct(layout).pack
        """Makes all of it, from ``before``, tag, ``between``, body size, ``after`` and the size once more."""

    def behind_tag(self, size: int) -> bytes:
        """Return all between the tag and a body of that size."""
        return self.between + size.to_bytes(8, "big") + self.after + size.to_bytes(4, "big")


class MessageEncoder:
    """Encodes batches into ``out``, the list of buffers that are to be written."""

    def __init__(self, out: list[Buffer], frame_max: int) -> None:
        self.out = out
        self.limit_frames(frame_max)
        self._prefixes: dict[tuple[int, str, bool, Envelope], Prefix] = {}

    def limit_frames(self, frame_max: int) -> None:
        """No frame may have more; 0: no limit."""
        self.largest_payload = frame_max - OVERHEAD if frame_max else 1 << 31
        self._copy_limit = min(COPY_LIMIT, self.largest_payload)

    def deliver(self, channel: int, deliveries: Iterable[Delivery]) -> list[NotCarried]:
        """Encode batches with basic.deliver, each under consecutive tags; return those that AMQP cannot carry."""
        prefixes = self._prefixes
        limit = self._copy_limit
        pieces: list[Buffer] = []
        not_carried: list[NotCarried] = []
        for consumer_tag, first_tag, redelivered, batch in deliveries:
            key = (channel, consumer_tag, redelivered, batch.envelope)
            prefix = prefixes.get(key)
            if prefix is None:
                prefix = self._new_prefix(key, first_tag, not_carried)
                if prefix is None:
                    continue
            bodies = _bodies_of(batch) if batch.multipart else batch.bodies
            if len(bodies) == 1 and 0 < (size := len(bodies[0])) <= limit:
                # Feeds with mixed keys come as batches of one: all of them make one buffer.
                before, between, after = prefix.before, prefix.between, prefix.after
                pieces += (prefix.pack(before, first_tag, between, size, after, size), bodies[0], END_OCTET)
                continue
            if pieces:
                self.out.append(b"".join(pieces))
                pieces = []
            self._deliver_batch(prefix, first_tag, bodies, batch.width)
        if pieces:
            self.out.append(b"".join(pieces))
        return not_carried

    def _deliver_batch(self, prefix: Prefix, first_tag: int, bodies: Sequence[Buffer], width: int) -> None:
        if not bodies:
            return
        tags = range(first_tag, first_tag + len(bodies))
        if 0 < width <= self._copy_limit:
            behind = prefix.behind_tag(width)
            pack = cached_struct(f">{len(prefix.before)}sQ{len(behind)}s{width}sB").pack
            try:
                frames = map(pack, repeat(prefix.before), tags, repeat(behind), bodies, repeat(END))
                self.out.append(b"".join(frames))
                return
            except struct.error:
                pass  # a memoryview among the bodies: struct takes none, join does
        sizes = list(map(len, bodies))
        heads = map(
            prefix.pack,
            repeat(prefix.before),
            tags,
            repeat(prefix.between),
            sizes,
            repeat(prefix.after),
            sizes,
        )
        self._append(prefix.channel, list(heads), sizes, bodies)

    def publish(self, channel: int, batch: Batch, *, mandatory: bool) -> None:
        """Encode a batch with basic.publish."""
        key = (channel, "", mandatory, batch.envelope)
        prefix = self._prefixes.get(key)
        if prefix is None:
            prefix = self._remember(key, _publish_prefix(channel, mandatory, batch.envelope))
        self._constant(prefix, batch)

    def get_ok(self, channel: int, tag: int, redelivered: bool, message_count: int, batch: Batch) -> None:
        """Encode the message of a batch with basic.get-ok.  Raises ``CannotCarry``."""
        envelope = batch.envelope
        _said(envelope)
        method = basic.GetOk(
            delivery_tag=tag,
            redelivered=redelivered,
            exchange=envelope.exchange,
            routing_key=envelope.key,
            message_count=message_count,
        )
        self._constant(_whole_prefix(channel, method.encode(), envelope), batch)

    def give_back(self, channel: int, code: int, text: str, batch: Batch) -> None:
        """Encode a batch with basic.return."""
        envelope = batch.envelope
        method = basic.Return(
            reply_code=code, reply_text=text, exchange=envelope.exchange, routing_key=envelope.key
        )
        self._constant(_whole_prefix(channel, method.encode(), envelope), batch)

    def _new_prefix(
        self, key: tuple[int, str, bool, Envelope], first_tag: int, not_carried: list[NotCarried]
    ) -> Prefix | None:
        """Return what precedes the bodies of a flow that is new; None: AMQP cannot carry it, and that is noted.

        So the question is asked once an envelope, and costs nothing a message.
        """
        try:
            return self._remember(key, _deliver_prefix(*key))
        except CannotCarry as refusal:
            not_carried.append((first_tag, str(refusal)))
            return None

    def _remember(self, key: tuple[int, str, bool, Envelope], prefix: Prefix) -> Prefix:
        if len(self._prefixes) >= MAXIMUM_TEMPLATES:
            self._prefixes.clear()
        self._prefixes[key] = prefix
        return prefix

    def _constant(self, prefix: Prefix, batch: Batch) -> None:
        """Encode messages whose method frames are all equal: one join puts equal-sized ones together."""
        bodies = _bodies_of(batch)
        if not bodies:
            return
        if 0 < batch.width <= self._copy_limit:
            head = prefix.before + prefix.behind_tag(batch.width)
            self.out.append(b"".join((head, (END_OCTET + head).join(bodies), END_OCTET)))
            return
        sizes = list(map(len, bodies))
        before = prefix.before + prefix.between
        pack = cached_struct(f">{len(before)}sQ{len(prefix.after)}sI").pack
        heads = list(map(pack, repeat(before), sizes, repeat(prefix.after), sizes))
        self._append(prefix.channel, heads, sizes, bodies)

    def _append(self, channel: int, heads: list[bytes], sizes: list[int], bodies: Sequence[Buffer]) -> None:
        """Put heads and bodies together, where sizes differ or are large."""
        if min(sizes) > 0 and max(sizes) <= self._copy_limit:
            self.out.append(
                b"".join(chain.from_iterable(zip(heads, bodies, repeat(END_OCTET), strict=False)))
            )
            return
        small: list[Buffer] = []
        for head, size, body in zip(heads, sizes, bodies, strict=True):
            if size == 0:
                small.append(head[:-7])  # no body, no body frame
            elif size <= self._copy_limit:
                small += (head, body, END_OCTET)
            else:
                small.append(head[:-7])
                small = self._append_large(channel, small, body, size)
        if small:
            self.out.append(b"".join(small))

    def _append_large(self, channel: int, small: list[Buffer], body: Buffer, size: int) -> list[Buffer]:
        """Write a body by reference, in as many frames as it takes; return what is to precede the next."""
        largest = self.largest_payload
        view = memoryview(body)
        for start in range(0, size, largest):
            length = min(largest, size - start)
            small.append(frame_header.pack(BODY, channel, length))
            self.out.append(b"".join(small))
            self.out.append(body if length == size else view[start : start + length])
            small = [END_OCTET]
        return small


def _bodies_of(batch: Batch) -> Sequence[Buffer]:
    """Return the bodies; AMQP has no parts, so those of a multi-part message are joined."""
    return [b"".join(parts) for parts in batch.bodies] if batch.multipart else batch.bodies


def _deliver_prefix(channel: int, consumer_tag: str, redelivered: bool, envelope: Envelope) -> Prefix:
    before = _DELIVER + short_string(consumer_tag)
    exchange_and_key, raw = _said(envelope)
    rest = bytes((redelivered,)) + exchange_and_key
    frame = frame_header.pack(METHOD, channel, len(before) + 8 + len(rest)) + before
    return Prefix(channel, frame, rest + END_OCTET, raw)


def _said(envelope: Envelope) -> tuple[bytes, bytes]:
    """Return exchange and key, and the properties, as AMQP writes them; raises ``CannotCarry``."""
    try:
        return short_string(envelope.exchange) + short_string(envelope.key), raw_properties(envelope)
    except LocalProtocolError as error:
        raise CannotCarry(str(error)) from error
    except Exception as error:  # properties are somebody's own mapping of anything
        raise CannotCarry(f"{type(error).__name__}: {error}") from error


def _publish_prefix(channel: int, mandatory: bool, envelope: Envelope) -> Prefix:
    fields = short_string(envelope.exchange) + short_string(envelope.key) + bytes((mandatory,))
    return _whole_prefix(channel, _PUBLISH + fields, envelope)


def _whole_prefix(channel: int, payload: bytes, envelope: Envelope) -> Prefix:
    frame = frame_header.pack(METHOD, channel, len(payload)) + payload + END_OCTET
    return Prefix(channel, frame, b"", raw_properties(envelope))
