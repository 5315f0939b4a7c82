"""Declarations: the exchanges, queues and bindings of the options, declared after each login."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugins.engines.amqp_client.options import AmqpClientOptions
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
    requests: list[tuple[str, Method]] = []
    for item in options.exchanges:
        declare = exchange.Declare(
            exchange=item.name,
            type=item.type,
            passive=item.passive,
            durable=item.durable,
            auto_delete=item.auto_delete,
            internal=item.internal,
            arguments=item.arguments,
        )
        requests.append((f"declaring exchange {item.name!r}", declare))
    for each in options.queues:
        wanted = queue.Declare(
            queue=each.name,
            passive=each.passive,
            durable=each.durable,
            exclusive=each.exclusive,
            auto_delete=each.auto_delete,
            arguments=each.arguments,
        )
        requests.append((f"declaring queue {each.name!r}", wanted))
    for binding in options.bindings:
        bind: Method
        if binding.queue:
            bind = queue.Bind(
                queue=binding.queue,
                exchange=binding.exchange,
                routing_key=binding.key,
                arguments=binding.arguments,
            )
        else:
            bind = exchange.Bind(
                destination=binding.to_exchange,
                source=binding.exchange,
                routing_key=binding.key,
                arguments=binding.arguments,
            )
        target = binding.queue or binding.to_exchange
        requests.append((f"binding {target!r} to exchange {binding.exchange!r}", bind))
    return requests
