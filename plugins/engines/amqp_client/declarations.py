"""Declarations: what is declared after each login, and before each new attempt to publish or consume."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from plugins.engines.amqp_client.role import Role
from plugins.protocols.amqp091.methods import exchange, queue
from plugins.protocols.amqp091.methods.method import Method

if TYPE_CHECKING:
    from plugins.engines.amqp_client.session import Session

Request: TypeAlias = tuple[str, Method]
"""What is asked for, for reports (``declaring queue 'orders'``), and the method that asks."""

MakeRequests: TypeAlias = Callable[[str], list[Request]]
"""Called with the name that the server has invented for a queue on this connection (empty: it has not yet)."""

_ANSWERS = (
    exchange.DeclareOk,
    exchange.DeleteOk,
    exchange.BindOk,
    exchange.UnbindOk,
    queue.DeclareOk,
    queue.DeleteOk,
    queue.BindOk,
    queue.UnbindOk,
)


class Declarations(Role):
    """Sends all at once and counts the answers, which come in the same order."""

    def __init__(self, session: Session, channel: int, make_requests: MakeRequests) -> None:
        super().__init__(session, channel, "declaring")
        self.server_named = ""
        """The queue whose name the server has invented; empty: there is none on this connection."""
        self._make_requests = make_requests
        self._requests: list[Request] = []
        self._answers = 0
        self._under_way = False

    def declare(self) -> None:
        """Declare all of it, again if it has been; ``Session.declared`` follows."""
        if self._under_way:
            return
        self._requests = self._make_requests(self.server_named)
        if not self._requests:
            self.session.declared()
        else:
            self._under_way = True
            self.start()

    def opened(self) -> None:
        """Ask for everything."""
        self._answers = 0
        for what, method in self._requests:
            self.name = what
            self.send(method)
        self.name = self._requests[0][0]

    def received(self, method: Method) -> None:
        """One more is there."""
        if not self._under_way or not isinstance(method, _ANSWERS):
            return
        asked = self._requests[self._answers][1]
        if isinstance(method, queue.DeclareOk) and isinstance(asked, queue.Declare) and not asked.queue:
            self.server_named = method.queue
        self._answers += 1
        if self._answers < len(self._requests):
            self.name = self._requests[self._answers][0]
        else:
            self._under_way = False
            self.up = True
            self.works()
            self.session.declared()

    def refused(self, code: int) -> None:
        """The server will not have the one called ``name``."""
        self.session.declaration_refused(self.name, code)

    def lost(self) -> None:
        """One of them was refused: ``name`` says which."""
        super().lost()
        self._under_way = False
