"""The inspector: packets in, lines out, and tables of all conversations at the end.

A capture may last for weeks and may be hostile, so everything that is kept has a limit: conversations that
are followed, flows whose protocol is remembered, rows of the tables.  What falls out of a limit is counted or
ends with the figures that it has.

TCP and datagrams go different ways.  A TCP connection has an order and an end, so each has a dissector of its
own (``conversation.py``).  Datagrams have neither: one dissector sees all datagrams of its protocol, and
decides itself what a session is (an SCTP association with several addresses, a PGM session over multicast).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from kernel.contracts.dissecting.latest import Latest
from kernel.contracts.dissector import Datagram, DatagramDissector, Line
from kernel.contracts.kinds import DissectorKind
from kernel.inspection.conversation import FAILED, Conversation, endpoint, failed, own_figures
from kernel.inspection.recognition import Recognition
from kernel.inspection.tcp import Segment

CONVERSATIONS = 4096
"""TCP connections that are followed at the same time; beyond that the longest silent one is given up."""
FLOWS = 4096
"""Pairs of UDP ports whose protocol is remembered."""
ROWS = 10_000
"""Rows of all tables together."""
TRIES = 8
"""Datagrams of a flow that are examined to recognise its protocol."""


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A line, and the conversation that it belongs to."""

    time: float
    protocol: str
    session: str
    source: str
    destination: str
    line: Line


class _Flow:
    """Datagrams from one UDP port to another."""

    def __init__(self) -> None:
        self.kind: DissectorKind | None = None
        self.tries = 0


class Inspector:
    """The contents of one capture."""

    def __init__(self, recognition: Recognition) -> None:
        self.left_out: int = 0
        """Conversations for which the tables had no room."""
        self._recognition = recognition
        self._conversations: Latest[Any, Conversation] = Latest(CONVERSATIONS, self._forgotten)
        self._flows: Latest[Any, _Flow] = Latest(FLOWS)
        self._datagrams: dict[str, DatagramDissector] = {}
        self._rows: dict[str, list[tuple[int, dict[str, Any]]]] = {}
        """Number and figures of ended conversations, by protocol."""
        self._numbers: dict[str, int] = {}
        self._time = 0.0

    # ------------------------------------------------------------------ packets

    def segment(self, segment: Segment) -> Iterator[Shown]:
        """Process a TCP segment."""
        self._time = segment.time
        # Before anything is kept for it.
        if not self._recognition.ports_wanted(segment.source[1], segment.destination[1]):
            return
        # Both directions are one conversation.
        key = tuple(sorted((segment.source, segment.destination)))
        conversation = self._conversations.get(key)
        # Ports are used again, so a new SYN may begin another connection with the same key.
        if conversation is None or conversation.tcp.starts_new_connection(segment):
            if conversation is not None:
                yield from self._end(conversation)
            conversation = Conversation(segment, self._recognition)
            self._conversations.put(key, conversation)
        source, destination = endpoint(*segment.source), endpoint(*segment.destination)
        yield from self._shown(conversation, conversation.take(segment), source, destination)

    def datagram(self, ip_protocol: int, datagram: Datagram) -> Iterator[Shown]:
        """Process the payload of UDP, or of IP with a protocol number of its own."""
        self._time = datagram.time
        # Without ports it is the payload of IP itself, as for PGM and SCTP.
        if datagram.source_port or datagram.destination_port:
            kind = self._of_udp(datagram)
        else:
            kind = self._recognition.over_ip(ip_protocol)
        if kind is None:
            return
        dissector = self._datagrams.get(kind.name)
        if dissector is None:
            dissector = self._datagrams[kind.name] = kind.create()
        source = endpoint(datagram.source, datagram.source_port)
        destination = endpoint(datagram.destination, datagram.destination_port)
        try:
            lines = dissector.receive(datagram)
        except Exception as error:
            # A dissector is a plugin's: its fault is shown in place of the datagram, and it gets the next
            # one.
            lines = [failed(error)]
        for line in lines:
            yield Shown(
                time=datagram.time,
                protocol=kind.name,
                session=line.session,
                source=source,
                destination=destination,
                line=line,
            )

    def finish(self) -> Iterator[Shown]:
        """Yield the remaining lines at the end of the capture."""
        for conversation in self._conversations.values():
            yield from self._end(conversation)

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of all conversations by protocol. Call it after ``finish``."""
        # Rows are kept as conversations end.  They are shown as the lines have numbered them.
        tables = {name: [row for _, row in sorted(rows, key=_number)] for name, rows in self._rows.items()}
        for name, dissector in self._datagrams.items():
            tables.setdefault(name, []).extend(_rows_of(name, dissector))
        return {name: rows for name, rows in tables.items() if rows}

    # ------------------------------------------------------------------ within

    def _of_udp(self, datagram: Datagram) -> DissectorKind | None:
        ports = (datagram.destination_port, datagram.source_port)
        if not self._recognition.ports_wanted(*ports):
            return None
        key = (datagram.source, datagram.source_port, datagram.destination, datagram.destination_port)
        flow = self._flows.get(key)
        if flow is None:
            flow = _Flow()
            self._flows.put(key, flow)
        # Not for ever: a capture may have many flows of protocols that nobody recognises, and each try asks
        # all dissectors.
        if flow.kind is None and flow.tries < TRIES:
            flow.tries += 1
            if self._recognition.is_meant(*ports):
                flow.kind = self._recognition.of_ports("datagram", *ports)
            else:
                found = self._recognition.of_bytes("datagram", datagram.data)
                flow.kind = found or self._recognition.of_ports("datagram", *ports)
        return flow.kind

    def _shown(
        self, conversation: Conversation, lines: Iterable[Line], source: str, destination: str
    ) -> Iterator[Shown]:
        for line in lines:
            assert conversation.kind is not None
            yield Shown(
                time=self._time,
                protocol=conversation.kind.name,
                session=f"{conversation.kind.name}-{self._number(conversation)}",
                source=source,
                destination=destination,
                line=line,
            )

    def _number(self, conversation: Conversation) -> int:
        """Return the conversation's number, counted from 1 per protocol in the order of recognition."""
        # At the first line and not at the first packet: a conversation that is ignored has no number.
        if not conversation.number:
            assert conversation.kind is not None
            name = conversation.kind.name
            self._numbers[name] = self._numbers.get(name, 0) + 1
            conversation.number = self._numbers[name]
        return conversation.number

    def _end(self, conversation: Conversation) -> Iterator[Shown]:
        source, destination = endpoint(*conversation.tcp.client), endpoint(*conversation.tcp.server)
        yield from self._shown(conversation, conversation.finish(self._time), source, destination)
        self._forgotten(conversation)

    def _forgotten(self, conversation: Conversation) -> None:
        """Keep the figures of an ended conversation."""
        # ``Latest`` calls this for the conversation that it removes, too.  No lines can be yielded from here,
        # so what such a conversation still waits for is not shown.
        if conversation.kind is None:
            return
        self._number(conversation)
        # Only the row is left out: its lines were shown.
        if sum(map(len, self._rows.values())) >= ROWS:
            self.left_out += 1
        else:
            rows = self._rows.setdefault(conversation.kind.name, [])
            rows.append((conversation.number, conversation.row()))


def _rows_of(name: str, dissector: DatagramDissector) -> list[dict[str, Any]]:
    found = own_figures(dissector.sessions)
    if FAILED in found:
        return [{"session": name, **found}]
    return [{"session": session, **facts} for session, facts in found.items()]


def _number(row: tuple[int, dict[str, Any]]) -> int:
    return row[0]
