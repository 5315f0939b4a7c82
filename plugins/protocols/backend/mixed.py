"""Mixed messages: a frame of small messages, each under an envelope of its own.

The payload of a MIXED frame is a MessagePack array of two arrays of one length: the bodies, and an entry for
the envelope of each.  An entry is one of these:

* a map: an envelope, with the fields that an ENVELOPE has;
* a number from 0 on: the envelope that has this number, by an ENVELOPE frame of the sender;
* a negative number: the envelope whose map is in this frame, counted from -1 for the first message;
* nil: the empty envelope;
* a string: an envelope that has this key and nothing else.  Only for peers whose greeting has ``mixed`` = 2.

So all messages of a frame are encoded, and decoded, by one call in C.  The current envelope of the
conversation neither applies to them nor is changed by them.

A sender gives a number to an envelope that it has met before (``MixedSender.number``).  Most keys of a feed
in which every message has another one are never met again, and would only drive the others out of the table.
Keys that come as strings (``MixedBatch``) get none: a number would save bytes, and cost a look at each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice, repeat
from operator import attrgetter
from typing import Any

import msgspec

from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.message import PLAIN, Batch, Envelope
from kernel.contracts.mixed_batch import EnvelopesByKey, MixedBatch, batches_of, envelope_of, mixed_batch
from kernel.contracts.timestamp import Timestamp
from plugins.protocols.backend.envelope_memory import KnownEnvelopes, SentEnvelopes
from plugins.protocols.backend.frames import CONTROL_LIMIT, Control, control_frame
from plugins.protocols.backend.greeting import MALFORMED

MOST = 1024
"""Messages of one frame at the most.  One without a body and with an empty map has two bytes on the wire, and
takes about 300 in memory."""

TOGETHER = 256
"""Messages that are put into one frame.  More make nothing cheaper."""

KEYS = 2
"""``mixed`` in the greeting of a side that reads keys in place of envelopes."""

_SMALL = 2048
"""Bytes of a batch of which a MIXED frame is made, on average.  For larger ones an ENVELOPE costs little."""

_MET = 4096
"""Envelopes without a number that are remembered, to be met again.  Their bytes have the limit of those that
have a number."""

_TWO = b"\x92"
"""Begins an array of two."""

Entry = Envelope | int | str | None

_size_of = attrgetter("size")
_bodies_of = attrgetter("bodies")
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

    __slots__ = ("_keys", "_known", "_met", "_met_bytes")

    def __init__(self, known: SentEnvelopes, *, keys: bool) -> None:
        self._known = known
        self._keys = keys
        """Whether the peer reads keys in place of envelopes."""
        self._met: set[Envelope] = set()
        self._met_bytes = 0

    def runs(self, batches: Sequence[Batch], most: int) -> list[tuple[Sequence[Batch], bool]]:
        """Divide batches into runs, in order, and say of each whether it is to be ``encoded``.

        ``most``: bytes of the largest message that the peer accepts.
        """
        count = len(batches)
        if count > TOGETHER:
            parts = (batches[at : at + TOGETHER] for at in range(0, count, TOGETHER))
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

    def accepts(self, batch: MixedBatch, most: int) -> bool:
        """Whether a mixed batch can be sent as it is.  ``most`` as for ``runs``."""
        return self._keys and batch.size <= min(_SMALL * len(batch.bodies), most)

    def number(self, envelopes: Iterable[Envelope]) -> tuple[list[bytes], Envelope | None]:
        """Give numbers to envelopes that were met before.

        Return the frames that do so, and the envelope that is current behind them; None: as before.
        """
        known = self._known
        frames: list[bytes] = []
        current: Envelope | None = None
        fresh = set(envelopes).difference(known.numbers)
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
        envelopes: list[Envelope] = list(map(envelope_of, batches))
        bodies = list(chain.from_iterable(map(_bodies_of, batches)))
        entries: list[Entry] = list(map(self._known.numbers.get, envelopes, envelopes))
        if len(bodies) > MOST:
            return None
        # Each map is sent once, and for each body there is an entry.
        counts = list(map(len, map(_bodies_of, batches)))
        if counts.count(1) < len(counts) or len(set(envelopes)) < len(envelopes):
            entries = _for_each_body(batches, entries)
        return self._frame(bodies, entries)

    def encoded_mixed(self, batch: MixedBatch) -> tuple[list[bytes], Envelope | None, bytes | None]:
        """Return what ``number`` returns, which has to be sent, and the frame of a mixed batch.

        None: it cannot be sent in one.  It has at most ``TOGETHER`` messages.
        """
        entries: list[Entry] = list(batch.entries)
        frames: list[bytes] = []
        current: Envelope | None = None
        keys = _are_keys(entries)
        if not keys:
            frames, current = self.number([entry for entry in entries if type(entry) is Envelope])
            numbers: Mapping[Any, Entry] = self._known.numbers
            entries = _each_map_once(map(numbers.get, entries, entries))
        return frames, current, self._frame(batch.bodies, entries, keys=keys)

    def _frame(self, bodies: Sequence[Any], entries: list[Entry], *, keys: bool = False) -> bytes | None:
        """Return a MIXED frame; None if it cannot be sent.  ``keys``: all entries are strings."""
        try:
            encoded = _encoder.encode(entries)
            # What the receiver would refuse: a key of type bytes, for example, can be encoded.
            if not keys:
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


def _are_keys(entries: list[Entry]) -> bool:
    """Whether all entries are strings.  It is asked once a frame: 12 ns a message."""
    return list(map(type, entries)).count(str) == len(entries)


def _for_each_body(batches: Sequence[Batch], entries: list[Entry]) -> list[Entry]:
    """Return an entry for each body: a number instead of a map that the frame has already."""
    return _each_map_once(
        chain.from_iterable(
            repeat(entry, len(batch.bodies)) for batch, entry in zip(batches, entries, strict=True)
        )
    )


def _each_map_once(entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries with a number in place of an envelope that was there before."""
    all_entries: list[Entry] = []
    places: dict[Envelope, int] = {}
    for entry in entries:
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


def decode_mixed(
    payload: bytes, known: KnownEnvelopes, max_message: int, by_key: EnvelopesByKey | None
) -> list[Batch]:
    """Decode the payload of a MIXED frame.  Raises ``RemoteProtocolError``.

    ``by_key``: the envelopes of keys, to make batches; None: a mixed batch is asked for.
    """
    bodies, entries = mixed_arrays(payload)
    if len(payload) > max_message and max(map(len, bodies), default=0) > max_message:
        raise RemoteProtocolError(f"a larger message than max_message, which is {max_message}")
    if by_key is not None:
        return batches_of(
            bodies,
            [
                by_key[entry] if type(entry) is str else _envelope_by(entry, entries, known)
                for entry in entries
            ],
        )
    if not bodies:
        return []
    all_keys = list(map(type, entries)).count(str) == len(entries)
    own: Any = entries if all_keys else [_envelope_by(entry, entries, known) for entry in entries]
    return [mixed_batch(bodies, own)]


def _envelope_by(entry: Entry, entries: list[Entry], known: KnownEnvelopes) -> Any:
    """Return the envelope, or the key, that an entry means."""
    if type(entry) is Envelope or type(entry) is str:
        return entry
    if entry is None:
        return PLAIN
    assert isinstance(entry, int)
    found: Entry = None
    if entry >= 0:
        found = known.numbered(entry)
    elif -len(entries) <= entry:
        found = entries[-entry - 1]
    # Not a string: a key is sent again, and not referred to.
    if type(found) is not Envelope:
        raise RemoteProtocolError(f"MIXED with envelope {entry}, which was never sent")
    return found


def _length(array: msgspec.Raw) -> int:
    """Return how many items an encoded array has; more than ``MOST`` if it is none."""
    head = bytes(array)[:3]
    if 0x90 <= head[0] <= 0x9F:
        return head[0] & 0x0F
    return int.from_bytes(head[1:3], "big") if head[0] == 0xDC else MOST + 1
