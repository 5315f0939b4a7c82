"""Commands: a name and data, in a frame with the flag COMMAND; and the metadata of READY and INITIATE."""

from __future__ import annotations

from collections.abc import Iterator

from plugins.protocols.zmtp.faults import MALFORMED, HandshakeFault

METADATA_LIMIT = 8192
"""Bytes of the largest command that is accepted in a handshake, metadata included."""
PING_CONTEXT = 16
"""Bytes of the context of a PING at most (37/ZMTP, "Connection Heartbeating")."""
MISSPELT_ERROR = "^RROR"
"""What libzmq 4.3 writes for ERROR: the C literal ``\\x05ERROR`` begins with the octet 0x5E."""


def encode_command(name: bytes, data: bytes = b"") -> bytes:
    """Return the body of a command frame."""
    return bytes((len(name),)) + name + data


def split_command(body: bytes) -> tuple[str, bytes]:
    """Return a command's name and data.  Raises ``RemoteProtocolError``."""
    end = 1 + body[0] if body else 0
    # The misspelt name has no length in front: it is recognised whole.
    if body.startswith(MISSPELT_ERROR.encode()):
        return "ERROR", body[len(MISSPELT_ERROR) :]
    if end < 2 or len(body) < end:
        raise HandshakeFault("a command without a name", "malformed-command")
    return body[1:end].decode("ascii", "replace"), body[end:]


def short_strings(name: str, data: bytes, count: int) -> list[bytes]:
    """Return strings of one byte of length each, which have to fill the data."""
    strings: list[bytes] = []
    at = 0
    for _ in range(count):
        end = at + 1 + data[at] if at < len(data) else len(data) + 1
        if end > len(data):
            raise HandshakeFault(f"{name} that ends too early", MALFORMED[name])
        strings.append(data[at + 1 : end])
        at = end
    if at < len(data):
        raise HandshakeFault(f"{len(data) - at} bytes behind the end of {name}", MALFORMED[name])
    return strings


def encode_metadata(metadata: dict[str, bytes]) -> bytes:
    """Return metadata: for each a name (one byte of length) and a value (four bytes of length)."""
    return b"".join(
        bytes((len(name),)) + name.encode() + len(value).to_bytes(4, "big") + value
        for name, value in metadata.items()
    )


def decode_metadata(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield names and values.  Raises ``RemoteProtocolError``."""
    at = 0
    while at < len(data):
        middle = at + 1 + data[at]
        end = middle + 4 + int.from_bytes(data[middle : middle + 4], "big")
        if len(data) < end or len(data) < middle + 4 or not data[at]:
            raise HandshakeFault("metadata that do not fill their command", "invalid-metadata")
        yield data[at + 1 : middle].decode("ascii", "replace"), data[middle + 4 : end]
        at = end
