"""HeaderBlocks: from the octets of a header block to the flow of its frame.

Frames of one flow have the same header block, but for ``content-length``, ``receipt`` and ``transaction``,
and in ACK and NACK for the message that they name.  Of a server's frames, MESSAGE differs in what its
acknowledgement has to name, and RECEIPT in the receipt.  Whole blocks are looked up first: a client that asks
for no receipts sends few different ones.  A block that is like the last one is compared with it, around the
values of these headers (``find_like_last``).  Otherwise these are cut out, and the rest is looked up.  Only
a rest that is new is decoded.

Both tables are bounded by their number of entries and octets, since a peer chooses what is in them, and are
cleared when they are full.  Then equal blocks give another flow, which costs a batch boundary.
"""

from __future__ import annotations

import re

from plugins.protocols.stomp.errors import Fault
from plugins.protocols.stomp.escapes import unescape
from plugins.protocols.stomp.frames import UNESCAPED, Flow, Head
from plugins.protocols.stomp.limits import Limits
from plugins.protocols.stomp.versions import Version

MOST_BLOCKS = 256
"""Entries of each table."""
MOST_OCTETS = 1 << 19
"""Octets of the keys of each table."""

_OF_ONE_FRAME = re.compile(rb"\n(content-length|receipt|transaction):([^\n]*)")
# Every ACK names another message.
_OF_ONE_ACK = re.compile(rb"\n(content-length|receipt|transaction|id|message-id):([^\n]*)")
# RabbitMQ passes the header receipt of a SEND frame on to subscribers.
_OF_ONE_MESSAGE = re.compile(rb"\n(content-length|message-id|ack|receipt):([^\n]*)")
_OF_ONE_RECEIPT = re.compile(rb"\n(content-length|receipt-id):([^\n]*)")
_OF_ONE_ANSWER = re.compile(rb"\n(content-length):([^\n]*)")
# By the first three octets of the command, and for all other commands.
_OF_CLIENT = ({b"ACK": _OF_ONE_ACK, b"NAC": _OF_ONE_ACK}, _OF_ONE_FRAME)
_OF_SERVER = ({b"MES": _OF_ONE_MESSAGE, b"REC": _OF_ONE_RECEIPT}, _OF_ONE_ANSWER)
# Printable ASCII without escapes, and without a space at its beginning, which 1.0 drops.
_is_plain = re.compile(rb"[!-\[\]-~][ -\[\]-~]*\Z").match
_LF = 10
_BLANK_LINE = b"\n\n"
_ACKS_AT_A_TIME = 4096
"""Octets that are split into ACK frames in one step."""
_LONGEST_NAME = len(b"content-length:")
_LONGEST_NUMBER = 18
"""Digits of a content-length.  Longer numbers are no sizes, and Python's ``int`` is slow with them."""


class HeaderBlocks:
    """The header blocks of one connection."""

    def __init__(self, limits: Limits, version: Version, *, of_server: bool = False) -> None:
        """``of_server``: the frames are those of a server, and not of a client."""
        self._limits = limits
        self._version = version
        self._heads: dict[bytes, Head] = {}
        self._head_octets = 0
        self._flows: dict[bytes, Flow] = {}
        self._flow_octets = 0
        # The last block that was not found in a table, in literal octets and the values between them.
        self._last_flow: Flow | None = None
        self._parts: list[tuple[bytes, bytes]] = []
        """Literal octets, and the name of the header whose value is behind them."""
        self._tail = b""
        # STOMP 1.2 names a message by its header ack, earlier versions by message-id.
        self._acknowledges_by = b"id" if version is Version.V1_2 else b"message-id"
        table, self._cut_out_else = _OF_SERVER if of_server else _OF_CLIENT
        self._find_cut_out = table.get
        # The names of the header of a frame that ``Head.receipt`` has.
        self._receipt_by = frozenset((b"receipt",))
        if of_server:
            self._acknowledges_by = b""
            self._receipt_by = frozenset(
                (b"receipt-id", b"ack" if version is Version.V1_2 else b"message-id")
            )

    def find(self, block: bytes) -> Head:
        """Return the head of a header block, from its command to its blank line.  Raises ``Fault``."""
        head = self._heads.get(block)
        if head is not None:
            return head
        cut_out = self._find_cut_out(block[:3], self._cut_out_else)
        own = list(cut_out.finditer(block))
        rest = cut_out.sub(b"", block) if own else block
        flow = self._flows.get(rest)
        if flow is None:
            flow = self._remember_flow(rest)
        # ``_decode`` has checked the rest only, and only when it was new.
        if own:
            self._check_own(flow, own)
        head = self._head(flow, [each[1] for each in own], [each[2] for each in own])
        self._learn(flow, block, own)
        # Receipts and acknowledgements mostly come once.
        if head.receipt is None and head.acknowledged is None:
            self._head_octets += len(block)
            if len(self._heads) >= MOST_BLOCKS or self._head_octets > MOST_OCTETS:
                self._heads.clear()
                self._head_octets = len(block)
            self._heads[block] = head
        return head

    def find_like_last(self, data: bytes, position: int) -> tuple[Head, int] | None:  # noqa: C901 - an inner loop
        """Return the head of a block that differs from the last one in the headers of one frame only.

        Return its end as well.  None: it differs more, is not complete, or has a value that has to
        be looked at closely.
        """
        flow = self._last_flow
        if flow is None:
            return None
        starts, find = data.startswith, data.find
        most = self._limits.header_line - _LONGEST_NAME
        length: int | None = None
        receipt = transaction = acknowledged = None
        for literal, name in self._parts:
            if not starts(literal, position):
                return None
            position += len(literal)
            end = find(_LF, position, position + most)
            octets = data[position:end] if end > 0 else b""
            position = end
            if name == b"content-length":
                # Not ``_length``, which raises: a fault should name the receipt, which may come behind it.
                if not octets.isdigit() or len(octets) > _LONGEST_NUMBER:
                    return None
                length = int(octets)
                if length > self._limits.body:
                    return None
                continue
            if not _is_plain(octets):
                return None
            text = octets.decode()
            if name in self._receipt_by:
                receipt = text
            elif name == b"transaction":
                transaction = text
            elif name == self._acknowledges_by:
                acknowledged = text
        if not starts(self._tail, position):
            return None
        return Head(flow, length, receipt, transaction, acknowledged), position + len(self._tail)

    def find_acks_like_last(self, flow: Flow, data: bytes, position: int) -> tuple[list[str], int]:
        """Return what ACK frames from ``position`` on name that are like the last one, and where they end.

        ``flow``: that of the last one.  They differ in this name only, follow each other without an
        end of line between them, and have no body.  A client that acknowledges each message sends
        many of them at once.
        """
        names: list[str] = []
        if self._last_flow is not flow or len(self._parts) != 1 or self._tail != _BLANK_LINE:
            return names, position
        literal = self._parts[0][0]
        between = _BLANK_LINE + b"\0"
        most = self._limits.header_line - _LONGEST_NAME
        # A part at a time: whatever follows the frames, a bounded number of octets is looked at in vain.
        while data.startswith(literal, position):
            values = data[position : position + _ACKS_AT_A_TIME].split(between + literal)
            values[0] = values[0][len(literal) :]
            # The last of them is not complete, or something else follows it.
            del values[-1]
            for value in values:
                if len(value) > most or not _is_plain(value):
                    return names, position
                names.append(value.decode())
                position += len(literal) + len(value) + len(between)
            if not values:
                break
        return names, position

    def _learn(self, flow: Flow, block: bytes, own: list[re.Match[bytes]]) -> None:
        """Note what a block is made of, for ``find_like_last``."""
        names = [each[1] for each in own]
        # Of repeated headers the first counts.
        self._last_flow = flow if len(set(names)) == len(names) else None
        ends = [0, *[each.end() for each in own]]
        literals = [block[end : each.start(2)] for end, each in zip(ends, own, strict=False)]
        self._parts = list(zip(literals, names, strict=True))
        self._tail = block[ends[-1] :]

    def _remember_flow(self, rest: bytes) -> Flow:
        flow = self._decode(rest)
        self._flow_octets += len(rest)
        if len(self._flows) >= MOST_BLOCKS or self._flow_octets > MOST_OCTETS:
            self._flows.clear()
            self._flow_octets = len(rest)
        self._flows[rest] = flow
        return flow

    def _decode(self, block: bytes) -> Flow:
        # STOMP 1.2, Augmented BNF: an end of line is LF or CR LF.  Earlier versions have LF only, but their
        # clients send both (and RabbitMQ reads both).
        lines = [line.rstrip(b"\r") for line in block.split(b"\n")]
        # The blank line, and what ``split`` finds behind the last end of line.
        command, *entries = lines[:-2]
        self._check_sizes(lines, len(entries))
        try:
            name = command.decode()
        except UnicodeDecodeError:
            raise Fault("Malformed frame", f"the command {command[:80]!r} is not UTF-8") from None
        version = Version.V1_0 if name in UNESCAPED else self._version
        # Of a frame that opens a conversation, the version is not known yet.
        trims = self._version is Version.V1_0 and name not in UNESCAPED
        headers: dict[str, str] = {}
        for entry in entries:
            key, value = _entry(entry, version)
            if trims:
                # STOMP 1.2, Value Encoding: 1.0 pads in its examples, so servers and clients trim.
                value = value.lstrip(" ")
            # STOMP 1.2, Repeated Header Entries: the first counts.
            headers.setdefault(key, value)
        return Flow(name, headers)

    def _check_sizes(self, lines: list[bytes], count: int) -> None:
        limits = self._limits
        if count > limits.headers:
            raise Fault("Too many headers", f"{count} header lines; at most {limits.headers} are accepted")
        longest = max(map(len, lines))
        if longest > limits.header_line:
            raise Fault(
                "Header too long", f"a line has {longest} octets; at most {limits.header_line} are accepted"
            )

    def _check_own(self, flow: Flow, own: list[re.Match[bytes]]) -> None:
        limits = self._limits
        if len(flow.headers) + len(own) > limits.headers:
            raise Fault("Too many headers", f"at most {limits.headers} header lines are accepted")
        if max(each.end() - each.start() for each in own) - 1 > limits.header_line:
            raise Fault("Header too long", f"at most {limits.header_line} octets of a line are accepted")

    def _head(self, flow: Flow, names: list[bytes], octets: list[bytes]) -> Head:
        if not names:
            return Head(flow)
        # The first of a name counts, so it is set last.
        values = dict(zip(reversed(names), reversed(octets), strict=True))
        length = values.pop(b"content-length", None)
        texts = {name: self._value(flow, value) for name, value in values.items()}
        receipt = next((text for name, text in texts.items() if name in self._receipt_by), None)
        return Head(
            flow,
            None if length is None else self._length(length, receipt),
            receipt,
            texts.get(b"transaction"),
            texts.get(self._acknowledges_by),
        )

    def _value(self, flow: Flow, octets: bytes) -> str:
        value = _text(octets.rstrip(b"\r"))
        if b"\\" in octets:
            value = unescape(value, Version.V1_0 if flow.command in UNESCAPED else self._version)
        return value.lstrip(" ") if self._version is Version.V1_0 else value

    def _length(self, octets: bytes, receipt: str | None) -> int:
        digits = octets.strip(b" \r")
        if not digits.isdigit() or len(digits) > _LONGEST_NUMBER:
            raise Fault("Invalid header", f"content-length {octets[:80]!r} is no number of octets", receipt)
        length = int(digits)
        if length > self._limits.body:
            raise Fault(
                "Body too large",
                f"content-length is {length}; at most {self._limits.body} octets are accepted",
                receipt,
            )
        return length


def _entry(line: bytes, version: Version) -> tuple[str, str]:
    # A colon in the value should be escaped, from 1.1 on.  Clients forget it in destinations and in times.
    name, colon, value = line.partition(b":")
    if not colon or not name:
        raise Fault("Malformed frame", f"the header line {line[:80]!r} has no name and value")
    return unescape(_text(name), version), unescape(_text(value), version)


def _text(octets: bytes) -> str:
    try:
        return octets.decode()
    except UnicodeDecodeError:
        raise Fault("Malformed frame", f"the header {octets[:80]!r} is not UTF-8") from None
