"""Associations in a capture: which one a packet belongs to, and its figures."""

from __future__ import annotations

from typing import Any

from kernel.contracts.dissecting.awaited import Awaited
from kernel.contracts.dissecting.latest import Latest
from kernel.contracts.dissecting.sequence_watch import Seen, SequenceWatch
from kernel.contracts.dissector import CLIENT, SERVER
from plugins.protocols.sctp.chunks import ENDING, Chunk, Data, Init, Listed, Plain, Sack, Type

ASSOCIATIONS = 1024
"""Associations that are remembered; the longest silent ones are removed."""

Endpoint = tuple[str, int]
"""Address and SCTP port."""
_ENDS = {Type.ABORT: "aborted", Type.SHUTDOWN_COMPLETE: "shutdown"}


class _Sender:
    """The data of one sender."""

    def __init__(self) -> None:
        self.chunks = self.messages = self.bytes = self.again = 0
        self.watch = SequenceWatch()
        self.awaited = Awaited()

    def send(self, chunk: Data, time: float) -> bool:
        """Count a DATA chunk; return whether it was seen before."""
        self.chunks += 1
        seen = self.watch.see(chunk.tsn)
        number = self.watch.unwrapped(chunk.tsn)
        # Karn's rule: the acknowledgement of a chunk that was sent twice may belong to either, so it is not
        # measured.
        if seen is Seen.AGAIN:
            self.again += 1
            self.awaited.do_not_measure(number)
            return True
        self.bytes += len(chunk.data)
        self.messages += bool(chunk.flags & ENDING)
        # A number that fills a gap was sent before others, and the times are kept in the order of the
        # numbers.
        if seen is Seen.NEW:
            self.awaited.sent(number, time)
        return False

    def acknowledge(self, cumulative: int, time: float) -> None:
        """Process the other side's cumulative acknowledgement."""
        self.awaited.answered_up_to(self.watch.unwrapped(cumulative), time)


class Association:
    """An association in a capture.

    The client is the sender of the INIT, or of the first packet that was seen.
    """

    def __init__(self, number: int, client: Endpoint, server: Endpoint) -> None:
        self.number = number
        self.name = f"sctp-{number}"
        self.client = client
        self.server = server
        self.malformed = self.wrong_checksums = 0
        self._senders = (_Sender(), _Sender())
        self._gaps = self._duplicates = 0
        self._end = "open"

    def see(self, sender: int, chunk: Chunk, time: float) -> bool:
        """Process a chunk; return whether it is retransmitted data."""
        if isinstance(chunk, Data):
            return self._senders[sender].send(chunk, time)
        if isinstance(chunk, Sack):
            self._gaps += len(chunk.gaps)
            self._duplicates += len(chunk.duplicates)
            self._senders[1 - sender].acknowledge(chunk.cumulative, time)
        elif isinstance(chunk, Listed | Plain) and chunk.kind in _ENDS:
            self._end = _ENDS[Type(chunk.kind)]
        return False

    def figures(self) -> dict[str, Any]:
        """Return the row of the table; ``out`` is from client to server."""
        out, back = self._senders
        return {
            "client": f"{self.client[0]} port {self.client[1]}",
            "server": f"{self.server[0]} port {self.server[1]}",
            "chunks_out": out.chunks,
            "chunks_in": back.chunks,
            "messages_out": out.messages,
            "messages_in": back.messages,
            "bytes_out": out.bytes,
            "bytes_in": back.bytes,
            "retransmitted": out.again + back.again,
            "missing": out.watch.missing + back.watch.missing,
            "gaps": self._gaps,
            "duplicates": self._duplicates,
            "wrong_checksums": self.wrong_checksums,
            "malformed": self.malformed,
            **(out if out.chunks >= back.chunks else back).awaited.durations.facts("rtt"),
            "end": self._end,
        }


class Associations:
    """Finds the association of a packet, by its verification tag or else by its addresses and ports."""

    def __init__(self) -> None:
        self._count = 0
        self._all: Latest[str, Association] = Latest(ASSOCIATIONS)
        self._by_tag: Latest[tuple[int, int, int], tuple[Association, int]] = Latest(4 * ASSOCIATIONS)
        self._by_ends: Latest[Any, Association] = Latest(ASSOCIATIONS)

    def all(self) -> list[Association]:
        """Return the remembered associations, in the order of their numbers."""
        return sorted(self._all.values(), key=lambda association: association.number)

    def of(
        self, source: Endpoint, destination: Endpoint, tag: int, initial: Init | None
    ) -> tuple[Association, int]:
        """Return the association and the sender of a packet; ``initial`` is its INIT chunk, if it has one."""
        association, sender = self._find(source, destination, tag, initial)
        # It had been removed, and its tag was still known: tags are remembered for longer.
        if self._all.get(association.name) is None:
            self._all.put(association.name, association)
        return association, sender

    def _find(
        self, source: Endpoint, destination: Endpoint, tag: int, initial: Init | None
    ) -> tuple[Association, int]:
        if initial is not None:
            # The tag in an INIT is the one that packets to its sender will have.  If it is known already,
            # this INIT is a repetition of the same association.
            known = self._by_tag.get((destination[1], source[1], initial.tag))
            if known is not None:
                return known[0], CLIENT
            association = self._new(source, destination)
            self._by_tag.put((destination[1], source[1], initial.tag), (association, SERVER))
            return association, CLIENT
        known = self._by_tag.get((source[1], destination[1], tag))
        if known is not None:
            return known
        # Neither an INIT nor a known tag: the association is older than the capture, or a packet of it comes
        # from another address.  Addresses and ports decide.
        association = self._by_ends.get(_ends(source, destination)) or self._new(source, destination)
        # The tag then tells association and sender of all packets in this direction, also from other
        # addresses.
        sender = CLIENT if source == association.client else SERVER
        self._by_tag.put((source[1], destination[1], tag), (association, sender))
        return association, sender

    def learn(self, association: Association, sender: int, tag: int) -> None:
        """Record the tag of an INIT ACK, which packets to its sender will have."""
        ports = (association.client[1], association.server[1])
        pair = ports if sender == SERVER else (ports[1], ports[0])
        self._by_tag.put((*pair, tag), (association, 1 - sender))

    def _new(self, source: Endpoint, destination: Endpoint) -> Association:
        self._count += 1
        association = Association(self._count, source, destination)
        self._all.put(association.name, association)
        self._by_ends.put(_ends(source, destination), association)
        return association


def _ends(source: Endpoint, destination: Endpoint) -> tuple[Endpoint, ...]:
    return tuple(sorted((source, destination)))
