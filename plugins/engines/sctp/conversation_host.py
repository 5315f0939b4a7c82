"""Conversation host: the conversations of one end, from the first word to the good-bye.

``EndpointHost`` keeps those whose associations are our protocol's, ``SystemHost`` those of the operating system's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import trio

from kernel.contracts.engine import Host
from plugins.engines.sctp.any_association import AnyAssociation
from plugins.engines.sctp.conversation import Conversation, Role
from plugins.engines.sctp.options import SctpEngineOptions
from plugins.protocols.sctp.events import What
from plugins.protocols.sctp.states import State

AssociationT = TypeVar("AssociationT", bound=AnyAssociation)
"""The sort of association that a host keeps."""

Converse = Callable[["ConversationHost[Any]", AnyAssociation], Conversation | None]
"""Makes the conversation of a new association, or refuses it."""


class ConversationHost(ABC, Generic[AssociationT]):
    """A conversation for each association."""

    port: int
    """Of SCTP, here."""
    udp_port: int | None
    """Of UDP; None: what is usual with the transport."""

    def __init__(self, host: Host, engine: str, options: SctpEngineOptions, converse: Converse) -> None:
        self.host = host
        self.conversations: dict[AssociationT, Conversation] = {}
        self.empty = trio.Event()
        """Set when good-bye has been said to all, and answered."""
        self._engine = engine
        self._options = options
        self._converse = converse
        self._closing = False
        self._ended: list[AssociationT] = []
        """Their conversations are over, their last words perhaps not sent."""

    @abstractmethod
    def connect(self, addresses: list[bytes], port: int) -> Conversation:
        """Begin an association with the peer of these addresses."""

    @abstractmethod
    def close(self) -> None:
        """Give the sockets back."""

    @abstractmethod
    def statistics(self) -> dict[str, int]:
        """What has passed."""

    @abstractmethod
    def _flusher(self, association: AssociationT) -> Callable[[], Any]:
        """Return what sends all that an association has to send now."""

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
        )

    def close_all(self) -> None:
        """Let all conversations end when their peers have everything; nobody else may begin one."""
        self._closing = True
        for conversation in list(self.conversations.values()):
            conversation.close()
            conversation.flush()
        if not self.conversations:
            self.empty.set()

    def _progress(self, association: AssociationT, now: float) -> None:
        """Tell a conversation what has become of its association."""
        conversation = self.conversations.get(association)
        restarted = any(event.what is What.RESTARTED for event in association.events)
        if conversation is not None and restarted:
            conversation.end("the peer has begun anew", list(association.left))
            conversation = None
        association.left.clear()
        if conversation is None:
            if association.state is State.CLOSED:
                association.events.clear()
                return
            conversation = None if self._closing else self._converse(self, association)
            if conversation is None:
                association.abort("shut down" if self._closing else "too many associations")
                association.events.clear()
                return
            self.conversations[association] = conversation
        conversation.progress(now)

    def _forget(self, association: AssociationT) -> None:
        """A conversation is over."""
        if self.conversations.pop(association, None) is not None:
            self._ended.append(association)
        if self._closing and not self.conversations:
            self.empty.set()
