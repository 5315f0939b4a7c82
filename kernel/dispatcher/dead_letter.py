"""Dead letters: messages that a destination has refused, with headers that say why and by whom.

The headers are ``properties["headers"]`` of the envelope, which every protocol that has headers carries.  The
rest of the envelope is not changed.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from kernel.contracts.message import Envelope
from kernel.contracts.properties import changed
from kernel.contracts.router import Router
from kernel.dispatcher.route import RouteSpec
from kernel.pipes.water_marks import WaterMarks


def dead_letter(envelope: Envelope, reason: str, engine: str, port: str, route: str) -> Envelope:
    """Return the envelope of a dead letter.

    ``port`` of ``engine`` has refused a message under ``envelope`` that came by ``route``.
    """
    noted = {
        "x-refused-reason": reason,
        "x-refused-by": engine,
        "x-refused-port": port,
        "x-refused-route": route,
    }
    # An envelope is shared by many messages, and immutable.  So the properties are copied, not changed.
    return msgspec.structs.replace(envelope, properties=changed(envelope.properties, headers=noted))


def dead_letter_route(
    source: str, route: str, engine: str, marks: WaterMarks, make_router: Callable[[], Router]
) -> RouteSpec:
    """Return the route from ``source`` to ``engine`` for messages that destinations of ``route`` refuse.

    ``make_router`` makes a router that gives each message to one port of ``engine``.  If that port goes,
    another takes over; if there is none, messages wait for one.
    """
    return RouteSpec(
        name=f"{route} refused -> {engine}",
        source=source,
        targets=(engine,),
        make_router=make_router,
        one_of_many=True,
        # The filter accepts nothing: what the source sends does not come here. Refused messages do not pass
        # the filter (``Route.take_refused``).
        make_filter=_nothing,
        marks=marks,
        # So that the source is told of a refused message only when it is safe with the dead letters.
        confirm=True,
        takes_refused=True,
    )


def _nothing() -> Callable[[Envelope], bool]:
    return lambda _: False
