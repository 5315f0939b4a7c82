"""What is wrong with a packet that is to be one of PGM."""

from __future__ import annotations

from plugins.dissectors.pgm.layer import BODIES, ODATA, PGM, SPMR, TYPES, options_of
from plugins.protocols.pgm.checksum import is_intact

_FAMILIES = ("path_afi", "source_afi", "group_afi")


def of(packet: PGM, data: bytes, cut: int) -> str:
    """Return the first thing that is wrong, "" if nothing is; ``cut`` bytes at the end are the capture's fault."""
    if packet.version:
        return f"version {packet.version}"
    if packet.type not in TYPES:
        return "an unknown type"
    if not cut:
        if packet.chksum and not is_intact(data):
            return "a wrong checksum"
        if not packet.chksum and packet.type in (4, 5):
            return "data without a checksum"
    return _of_body(packet, cut)


def _of_body(packet: PGM, cut: int) -> str:
    body = packet.payload
    expected = BODIES.get(packet.type)
    if expected is not None and not isinstance(body, expected) and (expected is not SPMR or len(body)):
        return "" if cut else "shorter than its header"
    for name in _FAMILIES:
        if body.fields.get(name, 1) not in (1, 2):
            return f"an address of family {body.fields[name]}"
    if packet.present:
        fault = "" if cut else _of_options(packet)
        if fault or cut:
            return fault  # where options may be cut off, nobody knows where the data begin
    size = len(body.payload)
    if isinstance(body, ODATA) and size + cut != packet.tsdu:
        return f"a TSDU of {size + cut} bytes that says it has {packet.tsdu}"
    return ""


def _of_options(packet: PGM) -> str:
    body = packet.payload
    if body.fields.get("length_type") or body.fields.get("length_len", 4) != 4:
        return "options that do not begin with OPT_LENGTH"
    options = options_of(body)
    if any(option.len < 4 for option in options):
        return "an option of less than four bytes"
    if 4 + sum(map(len, options)) != body.fields.get("total") or not options or not options[-1].last:
        return "options without an end"
    return ""
