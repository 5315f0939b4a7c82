"""Browsing: rows of a broker in pieces, for engines that show them (operation ``browse``).

``inspect`` makes all rows at once, which with a hundred thousand queues stops the broker for a second.  Here
a piece has at most ``PIECE`` things.  The first piece takes a list of the things, which is quick, and keeps
it as a walk; each further one goes on with it.  So a row is never shown twice or left out because something
else was deleted meanwhile.  A walk that nobody goes on with is dropped when others have come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeAlias

from kernel.contracts.errors import KernelError
from plugins.engines.broker.binding import Binding
from plugins.engines.broker.exchange import Exchange
from plugins.engines.broker.host.inspection import (
    binding_row,
    default_binding_row,
    exchange_row,
    inspect,
    queue_row,
)
from plugins.engines.broker.queue import Queue

if TYPE_CHECKING:
    from plugins.engines.broker.front_end import Client, FrontEnd
    from plugins.engines.broker.host.engine import BrokerEngine
    from plugins.engines.broker.virtual_host import VirtualHost

PIECE = 200
"""Things of one piece: a millisecond."""

MOST_WALKS = 16
"""Walks that are kept."""

_KEY = "browsing"
"""Where ``BrokerEngine.shared`` has the walks."""

Row: TypeAlias = dict[str, Any]
Later: TypeAlias = "Callable[[], Iterable[Row]]"
"""Makes the rows of one thing; none if it is gone."""


def browse(engine: BrokerEngine, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the next rows of a walk, and its number as long as there are more.

    ``asked`` has ``walk``, or for a new one ``what`` and perhaps ``vhost`` and ``name``: of queues and
    exchanges the one of this name, of bindings those to this queue (or, with ``end``, from or to this
    exchange).
    """
    walks: Walks = engine.shared.setdefault(_KEY, Walks())
    number = asked.get("walk")
    if number is None:
        number, things = walks.begin(iter(_things(engine, asked)))
    else:
        things = walks.find(number)
    rows: list[Row] = []
    count = 0
    for thing in islice(things, PIECE):
        count += 1
        rows += thing()
    # A list that ends just with a piece is found to be over by the next question, which gets no rows.
    if count < PIECE:
        walks.end(number)
        number = None
    return {"rows": rows, "walk": number}


class Walks:
    """The walks of one broker."""

    def __init__(self) -> None:
        self._walks: dict[int, Iterable[Later]] = {}
        self._last = 0

    def begin(self, things: Iterable[Later]) -> tuple[int, Iterable[Later]]:
        """Keep a new walk; the oldest goes if there are too many."""
        # A dict keeps their order. A reader that has gone never says so, and its walk would keep its list for
        # ever.
        while len(self._walks) >= MOST_WALKS:
            del self._walks[next(iter(self._walks))]
        self._last += 1
        self._walks[self._last] = things
        return self._last, things

    def find(self, number: int) -> Iterable[Later]:
        """Return the rest of a walk."""
        if number not in self._walks:
            raise KernelError("too many lists are being read at the same time; ask again")
        return self._walks[number]

    def end(self, number: int) -> None:
        """Forget a walk."""
        self._walks.pop(number, None)


def _things(engine: BrokerEngine, asked: Mapping[str, Any]) -> Iterable[Later]:
    what, name = asked["what"], asked.get("vhost")
    broker = engine.broker
    if name is None:
        vhosts = list(broker.vhosts.values())
    else:
        vhosts = [broker.vhosts[name]] if name in broker.vhosts else []
    if what == "vhosts":
        return [partial(_vhost, vhost) for vhost in vhosts]
    if what in _OF_VHOST:
        # Each virtual host's list is taken now, before the first row.
        return chain.from_iterable([_OF_VHOST[what](vhost, asked) for vhost in vhosts])
    # A client is one thing, with all of its channels.
    clients: list[Client | FrontEnd] = [*engine.clients, *engine.front_ends]
    if what in ("connections", "channels", "consumers"):
        return (partial(client.inspect, what) for client in clients)
    return [partial(inspect, what, broker, engine.users, ())]


def _vhost(vhost: VirtualHost) -> Iterable[Row]:
    yield {
        "name": vhost.name,
        "queues": len(vhost.queues),
        "exchanges": len(vhost.exchanges),
        "messages_in": vhost.messages_in,
        "messages_unrouted": vhost.messages_unrouted,
    }


def _queues(vhost: VirtualHost, asked: Mapping[str, Any]) -> Iterable[Later]:
    return (partial(_queue, queue) for queue in _named(vhost.queues, asked))


def _counts(vhost: VirtualHost, asked: Mapping[str, Any]) -> Iterable[Later]:
    return (partial(_count, queue) for queue in list(vhost.queues.values()))


def _exchanges(vhost: VirtualHost, asked: Mapping[str, Any]) -> Iterable[Later]:
    return (partial(_exchange, vhost, exchange) for exchange in _named(vhost.exchanges, asked))


def _named(things: Mapping[str, Any], asked: Mapping[str, Any]) -> list[Any]:
    name = asked.get("name")
    if name is None:
        return list(things.values())
    return [things[name]] if name in things else []


def _bindings(vhost: VirtualHost, asked: Mapping[str, Any]) -> Iterable[Later]:
    name, end = asked.get("name"), asked.get("end", "queue")
    queues: list[Queue] = []
    bindings: list[list[Binding]] = []
    if name is None:
        queues = list(vhost.queues.values())
        bindings = [list(exchange.bindings.values()) for exchange in vhost.exchanges.values()]
    elif end == "queue":
        queues = _named(vhost.queues, asked)
        bindings = [list(queue.incoming.values()) for queue in queues]
    elif end == "source" and not name:
        # The default exchange leads to every queue.
        queues = list(vhost.queues.values())
    else:
        for exchange in _named(vhost.exchanges, asked):
            found = exchange.bindings if end == "source" else exchange.incoming
            bindings.append(list(found.values()))
    return chain(
        (partial(_default_binding, queue) for queue in queues),
        (partial(_binding, vhost, binding) for binding in chain.from_iterable(bindings)),
    )


def _queue(queue: Queue) -> Iterable[Row]:
    if not queue.deleted:
        yield queue_row(queue)


def _count(queue: Queue) -> Iterable[Row]:
    yield {
        "vhost": queue.vhost.name,
        "messages_ready": queue.backlog.count,
        "messages_unacknowledged": queue.outstanding,
        "consumers": queue.consumer_count,
    }


def _exchange(vhost: VirtualHost, exchange: Exchange) -> Iterable[Row]:
    # Not only the name: another exchange may have it by now.
    if vhost.exchanges.get(exchange.name) is exchange:
        yield exchange_row(vhost.name, exchange)


def _default_binding(queue: Queue) -> Iterable[Row]:
    if not queue.deleted:
        yield default_binding_row(queue.vhost.name, queue.name)


def _binding(vhost: VirtualHost, binding: Binding) -> Iterable[Row]:
    # It may have been removed since the walk began.
    if binding.identity in binding.source.bindings:
        yield binding_row(vhost.name, binding)


_OF_VHOST: dict[str, Callable[[Any, Mapping[str, Any]], Iterable[Later]]] = {
    "queues": _queues,
    "counts": _counts,
    "exchanges": _exchanges,
    "bindings": _bindings,
}
