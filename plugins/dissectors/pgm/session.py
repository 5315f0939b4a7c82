"""One PGM source in a capture."""

from __future__ import annotations

from typing import Any

from scapy.packet import Packet

from kernel.contracts.dissecting.durations import Durations
from kernel.contracts.dissecting.latest import Latest
from kernel.contracts.dissecting.sequence_watch import Seen, SequenceWatch
from plugins.dissectors.pgm.layer import NAK, ODATA, PGM, numbers_of, options_of

REMEMBERED = 10_000
"""Requested sequence numbers whose times are remembered."""
_KINDS = ("ODATA", "RDATA", "SPM", "NAK", "NCF")


class _Asked:
    """A sequence number that a NAK requested."""

    def __init__(self, time: float) -> None:
        self.time = time
        self.confirmed = self.repaired = False


class Session:
    """Counts the packets of a source and its receivers."""

    def __init__(self) -> None:
        self.source = self.group = ""
        self.malformed = 0
        self._counts = dict.fromkeys(_KINDS, 0)
        self._bytes = self._parity = self._duplicates = 0
        self._asked = self._repaired = 0
        self._requests: Latest[int, _Asked] = Latest(REMEMBERED)
        self._watch = SequenceWatch()
        self._numbers = 0
        self._repair = Durations()
        self._confirmation = Durations()
        self._end = ""

    def see(self, kind: str, packet: PGM, time: float) -> None:
        """Process a packet that has no fault."""
        if kind in self._counts:
            self._counts[kind] += 1
        body = packet.payload
        # The sequence number of a parity packet is that of its group, so it would look like a repetition.
        if packet.parity:
            self._parity += 1
        elif isinstance(body, ODATA):
            self._data(kind, body.sqn, packet.tsdu, time)
        # If it is no ``NAK``, it was cut off.
        elif kind in ("NAK", "NCF") and isinstance(body, NAK):
            self._request(kind, body, time)
        for option in options_of(body):
            if option.type in (0x0E, 0x0F):
                self._end = "finished" if option.type == 0x0E else "reset"

    def figures(self) -> dict[str, Any]:
        """Return the row of the table."""
        return {
            "source": self.source,
            "group": self.group,
            **{kind.lower(): count for kind, count in self._counts.items()},
            "parity": self._parity,
            "bytes": self._bytes,
            "asked": self._asked,
            "repaired": self._repaired,
            # Of all receivers together: numbers that at least one of them has requested.
            "loss_percent": round(100 * self._asked / self._numbers, 2) if self._numbers else 0.0,
            "missing": self._watch.missing,
            "duplicates": self._duplicates,
            "malformed": self.malformed,
            **self._confirmation.facts("confirmed"),
            **self._repair.facts("repair"),
            "end": self._end or "open",
        }

    def _data(self, kind: str, number: int, size: int, time: float) -> None:
        seen = self._watch.see(number)
        if seen is not Seen.AGAIN:
            self._bytes += size
            self._numbers += 1
        # RDATA that repeats a number is a repair, and no duplicate: another receiver may have needed it.
        elif kind == "ODATA":
            self._duplicates += 1
        if kind == "RDATA":
            asked = self._requests.get(number)
            # Only the first repair is measured, from the first NAK on.
            if asked is not None and not asked.repaired:
                asked.repaired = True
                self._repaired += 1
                self._repair.add(time - asked.time)

    def _request(self, kind: str, request: Packet, time: float) -> None:
        for number in numbers_of(request):
            asked = self._requests.get(number)
            # An NCF may come without its NAK, which another link carried.  It counts as the request then.
            if asked is None:
                self._requests.put(number, _Asked(time))
                self._asked += 1
            elif kind == "NCF" and not asked.confirmed:
                asked.confirmed = True
                self._confirmation.add(time - asked.time)
