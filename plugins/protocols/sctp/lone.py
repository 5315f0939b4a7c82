"""Lone messages: one message in one packet, for a thread that sends and receives it on the short way.

``outgoing`` makes the packet of one message, and ``incoming`` reads one; each returns None where anything
else has to be done, and changes nothing.  What the association has to note of a message that was sent, or of
one that was taken, is in the attributes of what they return.  The caller stores it, in one step
(``plugins.engines.sctp.lone_half``).

The packets are the usual ones: a SACK that is due goes with the data, and what a SACK acknowledges is
forgotten.  Only an association of one path has a short way.
"""

from __future__ import annotations

from struct import Struct

import msgspec

from plugins.protocols.sctp.association import Association
from plugins.protocols.sctp.bundle import Bundle
from plugins.protocols.sctp.checksum import is_intact, sealed
from plugins.protocols.sctp.chunks import BEGINNING, DATA, ENDING, I_DATA, Type
from plugins.protocols.sctp.packets import HEADER
from plugins.protocols.sctp.path import Path
from plugins.protocols.sctp.schedule import Outgoing, Terms
from plugins.protocols.sctp.sequence import MASK16, MASK32
from plugins.protocols.sctp.states import State

_ADDRESS = Struct(">HHI")
"""Ports and verification tag."""
_SACK = Struct(">BBHIIHH")
"""A SACK without gap blocks and duplicates: type, flags, length, TSN, window, and two counts that are 0."""
_WHOLE = BEGINNING | ENDING
_NEITHER = (_SACK.size, 0, 0)
"""Length and counts of a SACK with neither gap blocks nor duplicates."""
_KINDS = (int(Type.DATA), int(Type.I_DATA), int(Type.SACK))
_ORDINARY = Terms()


class Sent(msgspec.Struct):
    """A packet with one message, and what is to be noted when it was sent."""

    packet: bytes
    bundle: Bundle
    message: Outgoing
    now: float
    sack_window: int
    """The window that its SACK tells; -1: it has none."""


class Taken(msgspec.Struct):
    """A message that came by itself, and what is to be noted of it."""

    stream: int
    number: int
    """Of the message in its stream."""
    data: bytes
    protocol: int
    sack_due: float
    window: int
    """The peer's window, if a SACK came with it; -1: none did."""
    bundle: Bundle | None
    """What the SACK acknowledges: all that was under way."""
    times: tuple[float | None, float, float]
    """SRTT, RTTVAR and RTO of the path afterwards."""
    timed: int | None
    """Of the path: the TSN whose round trip is still measured."""
    partial_bytes_acked: int
    """Of the path."""


def outgoing(
    association: Association, path: Path, stream: int, data: bytes, protocol: int, now: float
) -> Sent | None:
    """Return the packet for one ordered message; None: it has to be sent on the usual way."""
    sender, receiver, size = association.sender, association.receiver, len(data)
    if (
        association.state is not State.ESTABLISHED
        or receiver is None
        or not association.output.is_empty()
        or not sender.sends_at_once(size, path, now)
        or stream >= sender.streams
    ):
        return None
    sack, sack_window = b"", -1
    if receiver.sack_due is not None:
        told = receiver.plain_sack()
        if told is None:
            return None
        sack_window = told[1]
        sack = _SACK.pack(_KINDS[2], 0, _SACK.size, *told, 0, 0)
    tsn, number = sender.outstanding.next_tsn, sender.numbers[False].get(stream, 0)
    # As in ``Sender``: the first fragment of I-DATA has the protocol identifier (RFC 8260, 2.1).
    if sender.interleaved:
        length = I_DATA.size + size
        head = I_DATA.pack(_KINDS[1], _WHOLE, length, tsn & MASK32, stream, 0, number & MASK32, protocol)
    else:
        length = DATA.size + size
        head = DATA.pack(_KINDS[0], _WHOLE, length, tsn & MASK32, stream, number & MASK16, protocol)
    padded = data + bytes(-size & 3) if size & 3 else data
    if HEADER.size + len(sack) + len(head) + len(padded) > path.probing.size:
        return None
    packet = sealed(
        _ADDRESS.pack(association.port, association.peer_port, association.output.peer_tag),
        b"".join((sack, head, padded)),
    )
    message = Outgoing(
        stream, data, protocol, _ORDINARY, number=number, tsn=tsn, offset=size, fragments=1, fragments_sent=1
    )
    bundle = Bundle(
        tsn,
        tsn,
        [head, padded],
        [message],
        path,
        size,
        len(head) + len(padded),
        sends=1,
        sent_at=now,
        in_flight=True,
    )
    return Sent(packet, bundle, message, now, sack_window)


def incoming(association: Association, path: Path, packet: bytes, now: float) -> Taken | None:
    """Return the message that is in a packet with nothing else but a SACK; None: it has something else."""
    sender, receiver, end = association.sender, association.receiver, len(packet)
    if association.state is not State.ESTABLISHED or receiver is None or end < HEADER.size + _SACK.size:
        return None
    source, destination, tag, _ = HEADER.unpack_from(packet)
    if source != association.peer_port or destination != association.port or tag != association.tag:
        return None
    at, window, cumulative = HEADER.size, -1, 0
    if packet[at] == _KINDS[2]:
        _, _, length, cumulative, window, gaps, duplicates = _SACK.unpack_from(packet, at)
        # With counts of 0 and this length it is whole; what is left of the packet is looked at below.
        if (length, gaps, duplicates) != _NEITHER:
            return None
        at += length
    found = _only_data(packet, at, interleaved=receiver.interleaved)
    if found is None:
        return None
    tsn, stream, number, protocol, data = found
    if not receiver.is_next(tsn, stream, number, len(data)) or not is_intact(packet):
        return None
    bundle, times, timed = None, (path.srtt, path.rttvar, path.rto), path.timed
    partial = path.partial_bytes_acked
    if window >= 0:
        # Else it acknowledges nothing new, or only a part of what is under way.
        bundle = sender.acknowledges_the_only(cumulative, window)
        if bundle is None or bundle.path is not path:
            return None
        # Only what was sent once is measured (Karn's rule), and ``timed`` names only that.
        if timed == bundle.first:
            timed, times = None, path.after(now - bundle.sent_at)
        partial = path.counted(bundle.size)
    sack_due = receiver.delayed_sack(now)
    return Taken(stream, number, data, protocol, sack_due, window, bundle, times, timed, partial)


def _only_data(packet: bytes, at: int, *, interleaved: bool) -> tuple[int, int, int, int, bytes] | None:
    """Return TSN, stream, number, protocol identifier and data of the chunk that ends the packet.

    None if it is not one whole ordered message, or has more to say, as that its SACK must not be delayed.
    """
    begin, end = at + (I_DATA.size if interleaved else DATA.size), len(packet)
    if end <= begin or packet[at] != _KINDS[interleaved]:
        return None
    if interleaved:
        _, flags, length, tsn, stream, _, number, protocol = I_DATA.unpack_from(packet, at)
    else:
        _, flags, length, tsn, stream, number, protocol = DATA.unpack_from(packet, at)
    stop = at + length
    # Nothing is behind it but its padding, which may be missing.
    if flags != _WHOLE or not begin < stop <= end <= stop + (-length & 3):
        return None
    return tsn, stream, number, protocol, packet[begin:stop]
