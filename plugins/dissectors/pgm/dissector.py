"""PGM in captures: a line for each packet, and for each source what was lost, requested and repaired."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernel.contracts.dissecting.latest import Latest
from kernel.contracts.dissector import Datagram, Line
from plugins.dissectors.pgm.layer import (
    ACK,
    BODIES,
    NAK,
    ODATA,
    PGM,
    SPM,
    SPMR,
    TYPES,
    UPSTREAM,
    Option,
    OptNakList,
    numbers_of,
    options_of,
)
from plugins.dissectors.pgm.recognition import packets_of
from plugins.dissectors.pgm.session import Session
from plugins.protocols.pgm.checksum import is_intact
from plugins.protocols.pgm.packets import HEADER, tsi_text

_FAMILIES = ("path_afi", "source_afi", "group_afi")


def fault_of(packet: PGM, data: bytes, cut: int) -> str:
    """Return the first fault of a packet as text, empty if there is none.

    ``cut`` bytes at the end were not captured.
    """
    if packet.version:
        return f"version {packet.version}"
    if packet.type not in TYPES:
        return "an unknown type"
    if not cut:
        # A packet that was not captured whole cannot be checked.  RFC 3208, 8: a checksum of 0 means that
        # there is none, which is allowed for all packets except data.
        if packet.chksum and not is_intact(data):
            return "a wrong checksum"
        if not packet.chksum and packet.type in (4, 5):
            return "data without a checksum"
    return _fault_of_body(packet, cut)


def _fault_of_body(packet: PGM, cut: int) -> str:
    body = packet.payload
    expected = BODIES.get(packet.type)
    # scapy makes ``Raw`` of a body that is too short.  An SPMR has no body of its own, so it may be empty.
    if expected is not None and not isinstance(body, expected) and (expected is not SPMR or len(body)):
        return "" if cut else "shorter than its header"
    for name in _FAMILIES:
        # An address of another family has no known length, so what follows it cannot be found.
        if body.fields.get(name, 1) not in (1, 2):
            return f"an address of family {body.fields[name]}"
    if packet.present:
        fault = "" if cut else _fault_of_options(packet)
        # If options may be cut off, nobody knows where the data begins.
        if fault or cut:
            return fault
    size = len(body.payload)
    if isinstance(body, ODATA) and size + cut != packet.tsdu:
        return f"a TSDU of {size + cut} bytes that says it has {packet.tsdu}"
    return ""


def _fault_of_options(packet: PGM) -> str:
    body = packet.payload
    # RFC 3208, 9.1: OPT_LENGTH is the first option, and has the length of all of them.
    if body.fields.get("length_type") or body.fields.get("length_len", 4) != 4:
        return "options that do not begin with OPT_LENGTH"
    options = options_of(body)
    if any(option.len < 4 for option in options):
        return "an option of less than four bytes"
    # The last option has OPT_END set, and all of them fill what OPT_LENGTH has announced.
    if 4 + sum(map(len, options)) != body.fields.get("total") or not options or not options[-1].last:
        return "options without an end"
    return ""


SESSIONS = 1024
"""Sources that are remembered; the longest silent ones are removed."""
_HEAD = tuple(field.name for field in Option.head(0))


class PgmDissector:
    """The dissector of all sources of a capture. A session is named by its TSI."""

    def __init__(self) -> None:
        self._sessions: Latest[str, Session] = Latest(SESSIONS)

    def receive(self, datagram: Datagram) -> list[Line]:
        """Process a datagram. It may be several packets, captured before the system split it (GSO)."""
        pieces = list(packets_of(datagram.data)) or [b""]
        last = len(pieces) - 1
        return [
            self._packet(piece, datagram, datagram.cut if at == last else 0)
            for at, piece in enumerate(pieces)
        ]

    def sessions(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the figures of each source, by TSI."""
        return {name: session.figures() for name, session in self._sessions.items()}

    def _packet(self, data: bytes, datagram: Datagram, cut: int) -> Line:
        if len(data) < HEADER.size:
            return Line("malformed", {"why": f"{len(data)} bytes; a header has {HEADER.size}"}, "pgm")
        packet = PGM(data)
        fault = fault_of(packet, data, cut)
        kind = TYPES.get(packet.type, f"type {packet.type:#x}")
        name = _session_name(packet, kind)
        session = self._sessions.get(name)
        if fault:
            # A malformed packet makes no session: its TSI may be part of the damage.
            if session is not None:
                session.malformed += 1
            return Line(
                "malformed", {"why": fault, "type": kind, "bytes": len(data)}, name if session else "pgm"
            )
        if session is None:
            session = Session()
            self._sessions.put(name, session)
        # Packets of receivers go the other way, so their addresses say nothing about the source.
        if kind not in UPSTREAM:
            session.source, session.group = datagram.source, datagram.destination
        session.see(kind, packet, datagram.time)
        return Line(kind, _facts(packet, cut), name)


def _session_name(packet: PGM, kind: str) -> str:
    # RFC 3208, 8: a session (TSI) is the GSI and the port of the source, which is the destination port of
    # packets to the source.
    port = packet.dport if kind in UPSTREAM else packet.sport
    return tsi_text(packet.gsi + port.to_bytes(2, "big"))


def _facts(packet: PGM, cut: int) -> dict[str, Any]:
    body = packet.payload
    facts: dict[str, Any] = {}
    if isinstance(body, ODATA):
        facts = {"sqn": body.sqn, "trail": body.trail, "bytes": packet.tsdu}
    elif isinstance(body, SPM):
        facts = {"sqn": body.sqn, "trail": body.trail, "lead": body.lead, "path": body.path}
    elif isinstance(body, NAK):
        facts = {"sqns": numbers_of(body), "source": body.source, "group": body.group}
    elif isinstance(body, ACK):
        facts = {"highest": body.highest, "bitmap": f"{body.bitmap:#010x}"}
    if packet.parity:
        facts["parity"] = True
    for option in options_of(body):
        if not isinstance(option, OptNakList):
            facts[option.sprintf("%type%").lower()] = _of_option(option)
    return {**facts, "cut": cut} if cut else facts


def _of_option(option: Option) -> Any:
    """Return an option's own fields; True if it has none."""
    values = {name: value for name, value in option.fields.items() if name not in _HEAD}
    if option.specific:
        values["specific"] = option.specific
    return values or True
