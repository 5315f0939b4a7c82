"""Mixed messages: a frame of small messages, each under an envelope of its own.

The payload of a MIXED frame is a MessagePack array of two arrays of one length: the bodies, and an entry for
the envelope of each.  An entry is one of these:

* a map: an envelope, with the fields that an ENVELOPE has;
* a number from 0 on: the envelope that has this number, by an ENVELOPE frame of the sender;
* a negative number: the envelope whose map is in this frame, counted from -1 for the first message;
* nil: the empty envelope.

So all messages of a frame are encoded, and decoded, by one call in C.  The current envelope of the
conversation neither applies to them nor is changed by them.

A sender gives a number to an envelope that it has met before (``MixedSender.number``).  Most keys of a feed
in which every message has another one are never met again, and would only drive the others out of the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, islice
from operator import attrgetter
from typing import Any

import msgspec

from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.message import PLAIN, Batch, Envelope, batch_of
from kernel.contracts.timestamp import Timestamp
from plugins.protocols.backend.envelope_memory import KnownEnvelopes, SentEnvelopes
from plugins.protocols.backend.frames import CONTROL_LIMIT, Control, control_frame
from plugins.protocols.backend.greeting import MALFORMED

MOST = 1024
"""Messages of one frame at the most.  One without a body and with an empty map has two bytes on the wire, and
takes about 300 in memory."""

_TOGETHER = 256
"""Messages that are put into one frame.  More make nothing cheaper."""

_SMALL = 2048
"""Bytes of a batch of which a MIXED frame is made, on average.  For larger ones an ENVELOPE costs little."""

_MET = 4096
"""Envelopes without a number that are remembered, to be met again.  Their bytes have the limit of those that
have a number."""

_TWO = b"\x92"
"""Begins an array of two."""

Entry = Envelope | int | None

_size_of = attrgetter("size")
_bodies_of = attrgetter("bodies")
_envelope_of = attrgetter("envelope")
_is_multipart = attrgetter("multipart")


def _expressed(value: Any) -> Any:
    """Return a value as MessagePack has it.  Whatever else there is has to be sent as text, without MIXED."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Timestamp):
        return int(value)
    raise TypeError(f"MessagePack has no {type(value)}")


_encoder = msgspec.msgpack.Encoder(enc_hook=_expressed)
_arrays = msgspec.msgpack.Decoder(tuple[msgspec.Raw, msgspec.Raw])
_bodies = msgspec.msgpack.Decoder(list[bytes])
_entries = msgspec.msgpack.Decoder(list[Entry])
# RecursionError: the application may nest values without end.
_NOT_ENCODED = (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError)


def count_of(batches: Sequence[Batch]) -> int:
    """Return how many messages batches have together."""
    return sum(map(len, map(_bodies_of, batches)))


class MixedSender:
    """Makes MIXED frames for a peer that reads them."""

    __slots__ = ("_known", "_met", "_met_bytes")

    def __init__(self, known: SentEnvelopes) -> None:
        self._known = known
        self._met: set[Envelope] = set()
        self._met_bytes = 0

    def runs(self, batches: Sequence[Batch], most: int) -> list[tuple[Sequence[Batch], bool]]:
        """Divide batches into runs, in order, and say of each whether it is to be ``encoded``.

        ``most``: bytes of the largest message that the peer accepts.
        """
        count = len(batches)
        if count > _TOGETHER:
            parts = (batches[at : at + _TOGETHER] for at in range(0, count, _TOGETHER))
            return [run for part in parts for run in self.runs(part, most)]
        size = sum(map(_size_of, batches))
        # A batch whose size is accepted has no message that is too large.
        if count > 1 and size <= min(_SMALL * count, most) and not any(map(_is_multipart, batches)):
            return [(batches, True)]
        if count <= 2:
            return [(batches, False)]
        # There may be one large batch among many small ones.
        half = count // 2
        return self.runs(batches[:half], most) + self.runs(batches[half:], most)

    def number(self, batches: Sequence[Batch]) -> tuple[list[bytes], Envelope | None]:
        """Give numbers to envelopes that were met before.

        Return the frames that do so, and the envelope that is current behind them; None: as before.
        """
        known = self._known
        frames: list[bytes] = []
        current: Envelope | None = None
        fresh = set(map(_envelope_of, batches)).difference(known.numbers)
        if not fresh:
            return frames, current
        met = self._met
        if not met.isdisjoint(fresh):
            # In a table that is full one more drives out another. So a feed whose envelopes are met again,
            # but are too many for the table, pays for one in a frame only.
            for envelope in islice(met & fresh, max(1, known.room())):
                met.discard(envelope)
                try:
                    frames += known.activate(envelope)
                except ValueError:
                    continue
                current = envelope
        if len(met) > _MET or self._met_bytes > known.most_bytes:
            self._forget()
        met |= fresh
        return frames, current

    def encoded(self, batches: Sequence[Batch]) -> bytes | None:
        """Return the frame of these batches; None if they cannot be sent in one."""
        envelopes: list[Envelope] = list(map(_envelope_of, batches))
        bodies = list(chain.from_iterable(map(_bodies_of, batches)))
        entries: list[Entry] = list(map(self._known.numbers.get, envelopes, envelopes))
        if len(bodies) > MOST:
            return None
        # Each map is sent once, and for each body there is an entry.
        counts = list(map(len, map(_bodies_of, batches)))
        if counts.count(1) < len(counts) or len(set(envelopes)) < len(envelopes):
            entries = _for_each_body(batches, entries)
        try:
            encoded = _encoder.encode(entries)
            # What the receiver would refuse: a key of type bytes, for example, can be encoded.
            _entries.decode(encoded)
            payload = _TWO + _encoder.encode(bodies) + encoded
        except _NOT_ENCODED:
            self._forget()
            return None
        self._met_bytes += len(encoded)
        # An envelope that is larger than what the peer remembers is refused by the usual way, whether it
        # comes in a run or by itself.
        if len(encoded) > self._known.most_bytes or len(payload) > CONTROL_LIMIT:
            return None
        return control_frame(Control.MIXED, payload)

    def _forget(self) -> None:
        self._met.clear()
        self._met_bytes = 0


def _for_each_body(batches: Sequence[Batch], entries: list[Entry]) -> list[Entry]:
    """Return an entry for each body: a number instead of a map that the frame has already."""
    all_entries: list[Entry] = []
    places: dict[Envelope, int] = {}
    for batch, entry in zip(batches, entries, strict=True):
        for _ in batch.bodies:
            if type(entry) is Envelope:
                all_entries.append(places.get(entry, entry))
                places.setdefault(entry, -len(all_entries))
            else:
                all_entries.append(entry)
    return all_entries


def mixed_arrays(payload: bytes) -> tuple[list[bytes], list[Entry]]:
    """Return the bodies and the entries of a MIXED frame.  Raises ``RemoteProtocolError``."""
    try:
        of_bodies, of_entries = _arrays.decode(payload)
        # Before anything is decoded, so that a peer cannot have us make more of it.
        if max(_length(of_bodies), _length(of_entries)) > MOST:
            raise RemoteProtocolError(f"MIXED without two arrays of at most {MOST}")
        bodies = _bodies.decode(of_bodies)
        entries = _entries.decode(of_entries)
    except MALFORMED as error:
        raise RemoteProtocolError(f"malformed MIXED: {error}") from None
    if len(bodies) != len(entries):
        raise RemoteProtocolError(f"MIXED with {len(bodies)} bodies and {len(entries)} envelopes")
    return bodies, entries


def decode_mixed(payload: bytes, known: KnownEnvelopes, max_message: int) -> list[Batch]:
    """Decode the payload of a MIXED frame.  Raises ``RemoteProtocolError``."""
    bodies, entries = mixed_arrays(payload)
    if len(payload) > max_message and max(map(len, bodies), default=0) > max_message:
        raise RemoteProtocolError(f"a larger message than max_message, which is {max_message}")
    batches: list[Batch] = []
    several = False
    for body, entry in zip(bodies, entries, strict=True):
        envelope = entry if type(entry) is Envelope else _envelope_by(entry, entries, known)
        if batches and batches[-1].envelope is envelope:
            batches[-1].bodies.append(body)  # type: ignore[attr-defined]  # a list that this call has made
            several = True
        else:
            size = len(body)
            batches.append(Batch([body], size, envelope, False, size))
    # The sizes of batches of several messages are not known yet.
    return [batch_of(batch.bodies, batch.envelope) for batch in batches] if several else batches


def _envelope_by(entry: Entry, entries: list[Entry], known: KnownEnvelopes) -> Envelope:
    """Return the envelope that an entry without a map means."""
    if entry is None:
        return PLAIN
    assert isinstance(entry, int)
    found: Entry = None
    if entry >= 0:
        found = known.numbered(entry)
    elif -len(entries) <= entry:
        found = entries[-entry - 1]
    if type(found) is not Envelope:
        raise RemoteProtocolError(f"MIXED with envelope {entry}, which was never sent")
    return found


def _length(array: msgspec.Raw) -> int:
    """Return how many items an encoded array has; more than ``MOST`` if it is none."""
    head = bytes(array)[:3]
    if 0x90 <= head[0] <= 0x9F:
        return head[0] & 0x0F
    return int.from_bytes(head[1:3], "big") if head[0] == 0xDC else MOST + 1
