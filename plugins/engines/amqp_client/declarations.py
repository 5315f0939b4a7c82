"""Declarations: the channel that declares exchanges, queues and bindings.

It does so after each login, and again before a refused channel is started again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from plugins.engines.amqp_client.channel_handler import ChannelHandler
from plugins.protocols.amqp091.methods import exchange, queue
from plugins.protocols.amqp091.methods.method import Method

if TYPE_CHECKING:
    from plugins.engines.amqp_client.session import Session

Request: TypeAlias = tuple[str, Method]
"""A description for reports (``declaring queue 'orders'``), and the method."""

MakeRequests: TypeAlias = Callable[[str], list[Request]]
"""Called with the name that the server has given to a queue on this connection; empty: none yet."""

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


class Declarations(ChannelHandler):
    """Sends all requests at once and counts the answers, which come in the same order."""

    def __init__(self, session: Session, channel: int, make_requests: MakeRequests) -> None:
        super().__init__(session, channel, "declaring")
        self.server_named = ""
        """The queue that the server has named; empty: there is none on this connection yet."""
        self._make_requests = make_requests
        self._requests: list[Request] = []
        self._answers = 0
        self._waiting_for_answers = False

    def declare(self) -> None:
        """Declare everything, again if necessary; ``Session.declared`` is called when all is answered."""
        # One round serves everyone who asked for it: all start when it is complete.
        if self._waiting_for_answers:
            return
        self._requests = self._make_requests(self.server_named)
        if not self._requests:
            self.session.declared()
        else:
            self._waiting_for_answers = True
            self.start()

    def opened(self) -> None:
        """Send all requests."""
        self._answers = 0
        for what, method in self._requests:
            self.name = what
            self.send(method)
        # The server answers in order, and closes the channel at the first request that it refuses.  So
        # ``name`` is always that of the first request without an answer.
        self.name = self._requests[0][0]

    def received(self, method: Method) -> None:
        """Count an answer."""
        if not self._waiting_for_answers or not isinstance(method, _ANSWERS):
            return
        asked = self._requests[self._answers][1]
        # The answer to a declaration without a name has the name that the server has chosen (queue.declare,
        # rule "default-name").
        if isinstance(method, queue.DeclareOk) and isinstance(asked, queue.Declare) and not asked.queue:
            self.server_named = method.queue
        self._answers += 1
        if self._answers < len(self._requests):
            self.name = self._requests[self._answers][0]
        else:
            self._waiting_for_answers = False
            self.up = True
            self.works()
            self.session.declared()

    def refused(self, code: int) -> None:
        """The server has refused the request that ``name`` describes."""
        self.session.declaration_refused(self.name, code)

    def lost(self) -> None:
        """The channel has ended; ``name`` still describes the request that was refused."""
        super().lost()
        self._waiting_for_answers = False
