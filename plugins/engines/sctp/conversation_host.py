"""Conversation host: the conversations of one side, from the first packet to the end.

``EndpointHost`` has those whose associations our own protocol runs, ``SystemHost`` those of the operating
system. Everything here runs in the thread that hosts the engine.

An association and its conversation do not live equally long. A dialler makes both together, a listener makes
the conversation when it hears of a new association. A conversation ends before its association, whose last
packets are sent afterwards (``_ended``). When the peer restarts, the association goes on as the same object
(RFC 9260, 5.2.4, A), but with a new conversation: streams, windows and counts begin at zero.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import trio

from kernel.contracts.engine import Host
from kernel.hosting.lease import Lease
from plugins.engines.sctp.any_association import AnyAssociation
from plugins.engines.sctp.conversation import Conversation, Role
from plugins.engines.sctp.options import SctpEngineOptions
from plugins.engines.sctp.sctp_stream import SctpStream
from plugins.protocols.sctp.events import What
from plugins.protocols.sctp.states import State

AssociationT = TypeVar("AssociationT", bound=AnyAssociation)
"""The type of association that a host has."""

Converse = Callable[["ConversationHost[Any]", AnyAssociation], Conversation | None]
"""Makes the conversation of a new association; None: it is refused."""


class ConversationHost(ABC, Generic[AssociationT]):
    """A conversation for each association."""

    port: int
    """Our SCTP port."""
    udp_port: int | None
    """Our UDP port; None: the transport's default."""

    def __init__(self, host: Host, engine: str, options: SctpEngineOptions, converse: Converse) -> None:
        self.host = host
        self.conversations: dict[AssociationT, Conversation] = {}
        self.empty = trio.Event()
        """Set by ``close_all`` when the last conversation has ended."""
        self._engine = engine
        self._options = options
        self._converse = converse
        self._closing = False
        self._ended: list[AssociationT] = []
        """Associations whose conversations have ended, and whose last packets may not be sent yet."""

    @abstractmethod
    def connect(self, addresses: list[bytes], port: int) -> Conversation:
        """Start an association with the peer that has these addresses."""

    @abstractmethod
    def close(self) -> None:
        """Close the sockets."""

    @abstractmethod
    def repeats_until(self) -> float:
        """Return until when peers may repeat a packet that has to be answered after all associations' end."""

    @abstractmethod
    def statistics(self) -> dict[str, int]:
        """Return the counters of this host."""

    @abstractmethod
    def _flusher(self, association: AssociationT) -> Callable[[], Any]:
        """Return a function that sends what an association has to send."""

    def conversation(self, association: AssociationT, role: Role, *, plain: bool) -> Conversation:
        """Make the conversation of an association."""
        return Conversation(
            self.host,
            self._engine,
            self._options,
            association,
            role,
            plain=plain,
            flush=self._flusher(association),
            forget=lambda: self._forget(association),
            lend=self._lend,
        )

    def _lend(self, conversation: Conversation, stream: SctpStream, lease: Lease) -> None:
        """Offer a lease of the socket.  Not here: the system's own sockets have no packets."""

    def close_all(self) -> None:
        """Shut all conversations down when their peers have everything, and accept no more."""
        self._closing = True
        for conversation in list(self.conversations.values()):
            # The shutdown begins here, and the flush sends it: nothing else may happen that would.
            conversation.close()
            conversation.flush()
        if not self.conversations:
            self.empty.set()

    def _progress(self, association: AssociationT, now: float) -> None:
        """Let a conversation process what happened to its association; make one for a new association."""
        conversation = self.conversations.get(association)
        # Asked before the conversation sees the events: a restart ends it.
        restarted = any(event.what is What.RESTARTED for event in association.events)
        if conversation is not None and restarted:
            # First the end of the old conversation, with the messages that were received before the restart.
            # The new one, made below, finds the event RESTARTED and greets the peer.
            conversation.end("the peer has restarted", list(association.left))
            conversation = None
        # Messages of a conversation that ended earlier have no taker.
        association.left.clear()
        if conversation is None:
            # It ended before anything was made for it, as after an abort in the handshake.
            if association.state is State.CLOSED:
                association.events.clear()
                return
            conversation = None if self._closing else self._converse(self, association)
            if conversation is None:
                # The peer is told: it would otherwise wait for its connect timeout.
                association.abort("shut down" if self._closing else "too many associations")
                association.events.clear()
                return
            self.conversations[association] = conversation
        conversation.progress(now)

    def _forget(self, association: AssociationT) -> None:
        """Forget a conversation that has ended."""
        if self.conversations.pop(association, None) is not None:
            # Its last packets, as ABORT, are sent by the flush that follows; until then its UDP ports must be
            # known.
            self._ended.append(association)
        if self._closing and not self.conversations:
            self.empty.set()
