"""Declarations: the exchanges, queues and bindings of the options, declared after each login."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugins.engines.amqp_client.options import AmqpClientOptions, ClientBinding, ClientExchange, ClientQueue
from plugins.engines.amqp_client.role import Role
from plugins.protocols.amqp091.methods import exchange, queue
from plugins.protocols.amqp091.methods.method import Method

if TYPE_CHECKING:
    from plugins.engines.amqp_client.session import Session

_ANSWERS = (exchange.DeclareOk, queue.DeclareOk, queue.BindOk, exchange.BindOk)


class Declarations(Role):
    """Sends all at once and counts the answers, which come in the same order."""

    def __init__(self, session: Session, channel: int) -> None:
        super().__init__(session, channel, "declaring")
        self._requests = _requests(session.options)
        self._answers = 0
        self._under_way = False

    def declare(self) -> None:
        """Declare all of it, again if it has been; ``Session.declared`` follows."""
        if self._under_way:
            return
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
        if not isinstance(method, _ANSWERS):
            return
        self._answers += 1
        if self._answers < len(self._requests):
            self.name = self._requests[self._answers][0]
        elif self._under_way:
            self._under_way = False
            self.up = True
            self.backoff.succeeded()
            self.session.declared()

    def lost(self) -> None:
        """One of them was refused: ``name`` says which."""
        super().lost()
        self._under_way = False


def _requests(options: AmqpClientOptions) -> list[tuple[str, Method]]:
    return [
        *map(_exchange, options.exchanges),
        *map(_queue, options.queues),
        *map(_binding, options.bindings),
    ]


def _exchange(item: ClientExchange) -> tuple[str, Method]:
    declare = exchange.Declare(
        exchange=item.name,
        type=item.type,
        passive=item.passive,
        durable=item.durable,
        auto_delete=item.auto_delete,
        internal=item.internal,
        arguments=item.arguments,
    )
    return f"declaring exchange {item.name!r}", declare


def _queue(item: ClientQueue) -> tuple[str, Method]:
    declare = queue.Declare(
        queue=item.name,
        passive=item.passive,
        durable=item.durable,
        exclusive=item.exclusive,
        auto_delete=item.auto_delete,
        arguments=item.arguments,
    )
    return f"declaring queue {item.name!r}", declare


def _binding(item: ClientBinding) -> tuple[str, Method]:
    what = f"binding {item.queue or item.to_exchange!r} to exchange {item.exchange!r}"
    if item.queue:
        return what, queue.Bind(
            queue=item.queue, exchange=item.exchange, routing_key=item.key, arguments=item.arguments
        )
    return what, exchange.Bind(
        destination=item.to_exchange,
        source=item.exchange,
        routing_key=item.key,
        arguments=item.arguments,
    )
