"""Frames as they are read, and how single frames are written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from plugins.protocols.stomp.escapes import escape, header_line
from plugins.protocols.stomp.versions import Version

CONNECTING = frozenset(("CONNECT", "STOMP"))
"""The commands of the first frame of a client.  Both mean the same."""
OPENING = frozenset(("CONNECTED",))
"""The command with which a server opens a conversation."""
UNESCAPED = CONNECTING | OPENING
"""Frames whose headers have no escapes, so that every version can read them."""
REPEATED_BY_CLIENT = frozenset(("SEND",))
REPEATED_BY_SERVER = frozenset(("MESSAGE", "RECEIPT"))
"""The commands of frames that come several together (``Frames``)."""
HEART_BEAT = b"\n"
END = b"\0"
END_TO_CLIENTS = b"\0\n"
"""What ends the frames of a server.  The specification allows the line feed, and RabbitMQ sends it.  Behind a
body, the extension ``stomp`` of PHP waits for two octets."""


class Flow:
    """Command and headers that frames have in common.

    Equal to itself only.  Frames with the same command and headers have the same object while the reader
    remembers it, so that an owner can keep something for each.
    """

    __slots__ = ("command", "headers")

    def __init__(self, command: str, headers: Mapping[str, str]) -> None:
        self.command = command
        self.headers = headers
        """Without what belongs to a single frame: see ``Frames`` and ``Head``."""

    def __repr__(self) -> str:
        return f"<Flow {self.command} {self.headers!r}>"


class Head(NamedTuple):
    """The header block of one frame."""

    flow: Flow
    content_length: int | None = None
    receipt: str | None = None
    """What a client asks for.  Of a server: ``receipt-id`` in RECEIPT; what ACK has to name in MESSAGE."""
    transaction: str | None = None
    acknowledged: str | None = None
    """What an ACK or NACK names."""


class Frames(msgspec.Struct):
    """Consecutive frames of one flow and one transaction.

    Only the frames that are frequent come several together: SEND, MESSAGE, RECEIPT, and ACK without a receipt
    and without a transaction.
    """

    flow: Flow
    transaction: str | None
    bodies: list[bytes]
    size: int
    """Octets of all bodies."""
    width: int
    """Octets of each body, if all have the same; 0: they differ, or are empty."""
    acknowledged: list[str]
    """What ACK or NACK frames name: the headers ``id`` in STOMP 1.2, ``message-id``
    before.  Empty: nothing."""
    receipts: list[tuple[int, str]]
    """For each frame with a receipt (``Head``): which of the frames it is, from 1 on, and the value."""

    @property
    def command(self) -> str:
        """The command of each frame."""
        return self.flow.command

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of each frame, but for those of a single frame."""
        return self.flow.headers

    @property
    def receipt(self) -> str | None:
        """The receipt that the first of the frames asks for."""
        return self.receipts[0][1] if self.receipts and self.receipts[0][0] == 1 else None


def encode_frame(
    command: str, headers: Iterable[tuple[str, str]], version: Version, body: bytes = b"", *, end: bytes = END
) -> bytes:
    """Encode one frame.  A body gets a header ``content-length``.  Raises ``CannotCarry``."""
    escapes = Version.V1_0 if command in UNESCAPED else version
    lines = b"".join([header_line(name, value, escapes) for name, value in headers])
    length = b"content-length:%d\n" % len(body) if body else b""
    return b"%b\n%b%b\n%b%b" % (command.encode(), lines, length, body, end)


def encode_acknowledgements(
    command: str, identifiers: Iterable[str], subscription: str, version: Version
) -> bytes:
    """Encode ACK or NACK frames.

    ``identifiers``: the values of ``ack`` in STOMP 1.2, of ``message-id`` before.  A refused message does not
    return to its queue: whoever could not use it could not use it the next time (``requeue`` is RabbitMQ's).
    """
    name = "id" if version is Version.V1_2 else "message-id"
    lines = f"subscription:{escape(subscription, version)}\n" if version is Version.V1_1 else ""
    if command == "NACK":
        lines += "requeue:false\n"
    return "".join(
        [f"{command}\n{name}:{escape(each, version)}\n{lines}\n\0" for each in identifiers]
    ).encode()


def encode_receipts(receipts: Iterable[str], version: Version) -> bytes:
    """Encode RECEIPT frames.  What a peer has sent as a header can be sent back as one."""
    frames = [f"RECEIPT\nreceipt-id:{escape(receipt, version)}\n\n\0\n" for receipt in receipts]
    return "".join(frames).encode()
