"""The facts of chunks, by name."""

from __future__ import annotations

from typing import Any

from plugins.protocols.sctp.chunks import (
    BEGINNING,
    ENDING,
    IMMEDIATE,
    REFLECTED,
    UNORDERED,
    Chunk,
    Data,
    Forward,
    Init,
    Listed,
    Plain,
    Sack,
    Shutdown,
    Type,
    kind_of,
)
from plugins.protocols.sctp.parameters import Cause, Kind, Parameter

_HYPHENATED = {
    Type.I_DATA: "I-DATA", Type.RE_CONFIG: "RE-CONFIG", Type.FORWARD_TSN: "FORWARD-TSN",
    Type.I_FORWARD_TSN: "I-FORWARD-TSN",
}  # fmt: skip
_FLAGS = ((BEGINNING, "B"), (ENDING, "E"), (UNORDERED, "U"), (IMMEDIATE, "I"))
_PARAMETERS = {int(kind): kind.name for kind in Kind}
_CAUSES = {int(cause): cause.name for cause in Cause}
_NAMES = {int(kind): _HYPHENATED.get(kind, kind.name.replace("_", " ")) for kind in Type}


def name_of(chunk: Chunk) -> str:
    """Return the RFC's name of a chunk type."""
    kind = kind_of(chunk)
    return _NAMES.get(kind, f"chunk {kind}")


def facts_of(chunk: Chunk) -> dict[str, Any]:
    """Return the facts of a chunk."""
    if isinstance(chunk, Data):
        return _of_data(chunk)
    if isinstance(chunk, Init):
        return {
            "tag": chunk.tag,
            "window": chunk.window,
            "outbound": chunk.outbound,
            "inbound": chunk.inbound,
            "tsn": chunk.tsn,
            "parameters": [_named(parameter, _PARAMETERS) for parameter in chunk.parameters],
        }
    if isinstance(chunk, Sack):
        facts: dict[str, Any] = {"cumulative": chunk.cumulative, "window": chunk.window}
        if chunk.gaps:
            facts["gaps"] = [f"{first}-{last}" for first, last in chunk.gaps]
        if chunk.duplicates:
            facts["duplicates"] = list(chunk.duplicates)
        return facts
    if isinstance(chunk, Shutdown):
        return {"cumulative": chunk.cumulative}
    if isinstance(chunk, Forward):
        skipped = [f"{stream}:{number}" for stream, number, _ in chunk.skipped]
        return {"cumulative": chunk.cumulative, **({"skipped": skipped} if skipped else {})}
    return _of_others(chunk)


def _of_data(chunk: Data) -> dict[str, Any]:
    flags = "".join(letter for bit, letter in _FLAGS if chunk.flags & bit)
    facts: dict[str, Any] = {"tsn": chunk.tsn, "stream": chunk.stream}
    # I-DATA (RFC 8260) has a message identifier instead of a stream sequence number.
    facts["mid" if chunk.interleaved else "ssn"] = chunk.number
    # RFC 8260, 2.1: one field is the payload protocol identifier in the first fragment, and the fragment's
    # number in the others.
    if chunk.interleaved and not chunk.flags & BEGINNING:
        facts["fsn"] = chunk.fsn
    else:
        facts["ppid"] = chunk.protocol
    return {**facts, "flags": flags or "none", "bytes": len(chunk.data)}


def _of_others(chunk: Listed | Plain) -> dict[str, Any]:
    if isinstance(chunk, Listed):
        names = _CAUSES if chunk.kind in (Type.ABORT, Type.ERROR) else _PARAMETERS
        what = "causes" if names is _CAUSES else "parameters"
        facts: dict[str, Any] = {what: [_named(parameter, names) for parameter in chunk.parameters]}
    else:
        facts = {"bytes": len(chunk.value)} if chunk.value else {}
    # RFC 9260, 3.3.7 and 3.3.13, T bit: the verification tag is that of the packet which is answered.
    if chunk.kind in (Type.ABORT, Type.SHUTDOWN_COMPLETE) and chunk.flags & REFLECTED:
        facts["tag_reflected"] = True
    return facts


def _named(parameter: Parameter, names: dict[int, str]) -> str:
    return names.get(parameter.kind, f"{parameter.kind:#06x}")
