"""Parameters of chunks, and error causes (RFC 9260, 3.2.1 and 3.3.10).

Both have a type, a length and a value, with number spaces of their own. The two highest bits of a parameter's
type say what a receiver that does not know it has to do: stop or skip it, and report it or not.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from struct import Struct

import msgspec

from plugins.protocols.sctp.errors import MalformedPacket


class Kind(IntEnum):
    """Parameter types."""

    HEARTBEAT_INFO = 1
    IPV4 = 5
    IPV6 = 6
    STATE_COOKIE = 7
    UNRECOGNIZED = 8
    COOKIE_PRESERVATIVE = 9
    HOST_NAME = 11
    SUPPORTED_ADDRESS_TYPES = 12
    OUTGOING_RESET = 13
    INCOMING_RESET = 14
    TSN_RESET = 15
    RECONFIGURATION_RESPONSE = 16
    ADD_OUTGOING = 17
    ADD_INCOMING = 18
    ECN_CAPABLE = 0x8000
    SUPPORTED_EXTENSIONS = 0x8008
    FORWARD_TSN_SUPPORTED = 0xC000


class Cause(IntEnum):
    """Error causes of ERROR and ABORT."""

    INVALID_STREAM = 1
    MISSING_PARAMETER = 2
    STALE_COOKIE = 3
    OUT_OF_RESOURCE = 4
    UNRESOLVABLE_ADDRESS = 5
    UNRECOGNIZED_CHUNK = 6
    INVALID_MANDATORY = 7
    UNRECOGNIZED_PARAMETERS = 8
    NO_USER_DATA = 9
    COOKIE_WHILE_SHUTTING_DOWN = 10
    RESTART_WITH_NEW_ADDRESSES = 11
    USER_ABORT = 12
    PROTOCOL_VIOLATION = 13


class Parameter(msgspec.Struct, frozen=True, gc=False):
    """A parameter or an error cause."""

    kind: int
    value: bytes = b""


Parameters = tuple[Parameter, ...]

_HEAD = Struct(">HH")
_KNOWN = frozenset(map(int, Kind))


def encode(parameters: Iterable[Parameter]) -> bytes:
    """Return the encoded parameters.

    Each but the last is padded to a multiple of four bytes; the chunk pads the last.
    """
    encoded = b""
    for parameter in parameters:
        encoded += bytes(-len(encoded) % 4)
        encoded += _HEAD.pack(parameter.kind, 4 + len(parameter.value)) + parameter.value
    return encoded


def decode(data: bytes) -> Parameters:
    """Decode the parameters in ``data``. Raises ``MalformedPacket``."""
    found = []
    at = 0
    while at < len(data):
        if len(data) - at < 4:
            raise MalformedPacket(f"{len(data) - at} bytes where a parameter should be")
        kind, length = _HEAD.unpack_from(data, at)
        # A length below that of the head would let the loop stand still.
        if length < 4 or at + length > len(data):
            raise MalformedPacket(f"a parameter {kind:#06x} of {length} bytes in {len(data) - at}")
        found.append(Parameter(kind, data[at + 4 : at + length]))
        at += length + -length % 4
    return tuple(found)


def first(parameters: Parameters, kind: int) -> bytes | None:
    """Return the value of the first parameter of that type, or None."""
    for parameter in parameters:
        if parameter.kind == kind:
            return parameter.value
    return None


def recognized(parameters: Parameters, max_reported: int) -> tuple[Parameters, Parameters]:
    """Return the parameters to process, and the unknown ones to report to the sender (3.2.1, 3.2.2).

    The reports take ``max_reported`` bytes at most; parameters that do not fit are not reported.
    """
    counting, reported = [], []
    room = max_reported
    for parameter in parameters:
        if parameter.kind in _KNOWN:
            counting.append(parameter)
            continue
        size = 2 * _HEAD.size + len(parameter.value)
        # Table 3 of 3.2.1: the second highest bit says to report the parameter, the highest one to go on with
        # the others.
        if parameter.kind & 0x4000 and size <= room:
            reported.append(parameter)
            room -= size
        if not parameter.kind & 0x8000:
            break
    return tuple(counting), tuple(reported)
