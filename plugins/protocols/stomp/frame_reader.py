"""FrameReader: turns chunks, as the transport has cut them, into frames.

A frame that is not complete waits in one buffer, which grows with what comes.  It is read only when its end
has come: a search goes on where the last one stopped, and with a content-length nothing is searched.  So the
cost is linear in the octets, also for a peer that sends them one by one.
"""

from __future__ import annotations

import re

from plugins.protocols.stomp.errors import Fault
from plugins.protocols.stomp.frames import (
    CONNECTING,
    OPENING,
    REPEATED_BY_CLIENT,
    REPEATED_BY_SERVER,
    Frames,
    Head,
)
from plugins.protocols.stomp.header_blocks import HeaderBlocks
from plugins.protocols.stomp.limits import Limits
from plugins.protocols.stomp.versions import Version

_LF, _CR = 10, 13
# The blank line, or a NUL that should not be there: the frame ends in its headers.
_END_OF_HEADERS = re.compile(rb"\n\r?\n|\0")


class FrameReader:
    """Reads the frames of one peer, a client or (``of_server``) a server.

    After ``feed``, call ``read`` until it returns nothing.  It returns all complete frames, up to one that
    opens a conversation: the version that this agrees on decides how the frames behind it are read.  The
    frames before a fault are returned, and the next call raises it.
    """

    def __init__(self, limits: Limits | None = None, *, of_server: bool = False) -> None:
        self._limits = limits or Limits()
        self._of_server = of_server
        self._opening = OPENING if of_server else CONNECTING
        self._repeated = REPEATED_BY_SERVER if of_server else REPEATED_BY_CLIENT
        self._blocks = HeaderBlocks(self._limits, Version.V1_0, of_server=of_server)
        self._version = Version.V1_0
        self._data = b""
        self._position = 0
        self._fault: Fault | None = None
        self._block = b"\0"
        """The last header block; at first octets with which no frame begins."""
        self._head: Head | None = None
        # The frame that is not complete.
        self._pending = bytearray()
        self._needed = 0
        """How many octets there have to be before it is looked at; 0: its end has to be searched."""
        self._body_at = 0
        """Where its body begins; 0: in its header block."""
        self._searched = 0
        """Up to where its end has been searched."""

    @property
    def version(self) -> Version:
        """The version of the frames that come; 1.0, without escapes, until it is set."""
        return self._version

    @version.setter
    def version(self, version: Version) -> None:
        self._version = version
        # What is remembered was decoded by the rules of another version.
        self._blocks = HeaderBlocks(self._limits, version, of_server=self._of_server)
        self._block, self._head = b"\0", None

    @property
    def incomplete_bytes(self) -> int:
        """Octets of a frame that is not complete."""
        return len(self._pending)

    @property
    def incomplete_command(self) -> bytes:
        """The first word of a frame that is not complete, or what has come of it."""
        return bytes(self._pending[: self._pending.find(b"\n") + 1]).strip()

    def feed(self, data: bytes) -> None:
        """Take what was read from the peer."""
        if self._pending:
            self._pending += data
            if not self._may_be_complete():
                return
            data = bytes(self._pending)
            self._pending.clear()
        elif self._position < len(self._data):
            # What stands behind a frame that opens a conversation, and was not read yet.
            data = self._data[self._position :] + data
        self._data, self._position = data, 0

    def read(self) -> list[Frames]:
        """Return the frames that are complete; empty: there are no more.  Raises ``Fault``."""
        if self._fault is not None:
            raise self._fault
        found: list[Frames] = []
        try:
            self._read(found)
        except Fault as fault:
            # It has no end: where the next frame begins is not known any more.
            self._fault = fault
            self._data = b""
            self._pending.clear()
            if not found:
                raise
        return found

    def _read(self, found: list[Frames]) -> None:  # noqa: C901 - an inner loop
        data, position, end = self._data, self._position, len(self._data)
        starts = data.startswith
        block, block_head = self._block, self._head
        last: Frames | None = None
        acks: Frames | None = None
        """The ACK frame before this position, if more may follow it."""
        while position < end:
            if acks is not None:
                names, position = self._blocks.find_acks_like_last(acks.flow, data, position)
                acks.acknowledged += names
                acks.bodies += [b""] * len(names)
                acks = None
                continue
            octet = data[position]
            if octet == _LF:  # behind a frame, or a heart-beat
                position += 1
                continue
            if octet == _CR:
                if position + 1 == end:
                    self._needed = 2
                    break
                if data[position + 1] != _LF:
                    raise Fault("Malformed frame", "a carriage return is not followed by a line feed")
                position += 2
                continue
            # A block ends with its blank line, so no longer one can begin with it: equal octets are the whole
            # block.
            if block_head is not None and starts(block, position):
                head = block_head
                start = position + len(block)
            elif (like := self._blocks.find_like_last(data, position)) is not None:
                head, start = like
            else:
                start = self._end_of_headers(data, position, end)
                if not start:
                    break
                block = data[position:start]
                head = block_head = self._blocks.find(block)
                self._block, self._head = block, head
            length = head.content_length
            # The usual case, without a call.
            if length is not None and (stop := start + length) < end and not data[stop]:
                pass
            elif (stop := self._end_of_body(data, position, start, head)) < 0:
                break
            body = data[start:stop]
            position = stop + 1
            if last is not None and last.flow is head.flow and last.transaction == head.transaction:
                last.bodies.append(body)
                last.size += len(body)
                if len(body) != last.width:
                    last.width = 0
            else:
                flow = head.flow
                size = len(body)
                named = [] if head.acknowledged is None else [head.acknowledged]
                frames = Frames(flow, head.transaction, [body], size, size, named, [])
                found.append(frames)
                if named and flow.command == "ACK" and head.receipt is None and head.transaction is None:
                    acks = frames
                # The rest waits for the owner to set ``version``.
                if flow.command in self._opening:
                    self._position = position
                    return
                last = frames if flow.command in self._repeated else None
            if head.receipt is not None:
                found[-1].receipts.append((len(found[-1].bodies), head.receipt))
        self._pending += data[position:]
        self._data, self._position = b"", 0

    def _end_of_headers(self, data: bytes, position: int, end: int) -> int:
        """Return where the body begins; 0: the header block is not complete."""
        most = self._limits.header_block
        ends = _END_OF_HEADERS.search(data, position, position + most)
        if ends is None:
            if end - position >= most:
                raise Fault("Headers too long", f"at most {most} octets of headers are accepted")
            self._needed = self._body_at = 0
            self._searched = end - position
            return 0
        if ends[0] == b"\0":
            raise Fault("Malformed frame", "a frame ends before the blank line behind its headers")
        return ends.end()

    def _end_of_body(self, data: bytes, position: int, start: int, head: Head) -> int:
        """Return where the NUL behind the body is; -1: the body is not complete."""
        length = head.content_length
        if length is None:
            most = self._limits.body
            stop = data.find(0, start, start + most + 1)
            if stop < 0:
                if len(data) - start > most:
                    raise Fault("Body too large", f"at most {most} octets are accepted", head.receipt)
                self._needed, self._body_at = 0, start - position
                self._searched = len(data) - position
            return stop
        stop = start + length
        if stop >= len(data):
            self._needed = stop + 1 - position
            return -1
        if data[stop]:
            raise Fault(
                "Malformed frame",
                f"there is no NUL behind the {length} octets of the body that content-length announces",
                head.receipt,
            )
        return stop

    def _may_be_complete(self) -> bool:
        """Whether what is pending can be read on: the frame is complete, or too large."""
        pending = self._pending
        if self._needed:
            return len(pending) >= self._needed
        searched, self._searched = self._searched, len(pending)
        if self._body_at:
            return pending.find(0, searched) >= 0 or len(pending) - self._body_at > self._limits.body
        # The blank line may have begun in the chunk before, with LF CR.
        found = _END_OF_HEADERS.search(pending, max(searched - 2, 0))
        return found is not None or len(pending) >= self._limits.header_block
