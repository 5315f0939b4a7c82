"""Dead letters: what a destination has refused, with a note of why and by whom.

The note stands in the headers of the message (``properties["headers"]``), where every protocol that has headers
carries it.  The rest of the envelope stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from kernel.contracts.message import Envelope
from kernel.contracts.router import Router
from kernel.dispatcher.route import RouteSpec
from kernel.pipes.water_marks import WaterMarks


def dead_letter(envelope: Envelope, reason: str, engine: str, port: str, route: str) -> Envelope:
    """Return the envelope of a message that a port of ``engine`` has refused, which ``route`` had brought there."""
    headers = envelope.properties.get("headers")
    noted = {
        **(headers or {}),
        "x-refused-reason": reason,
        "x-refused-by": engine,
        "x-refused-port": port,
        "x-refused-route": route,
    }
    return msgspec.structs.replace(envelope, properties={**envelope.properties, "headers": noted})


def dead_letter_route(
    source: str, route: str, engine: str, marks: WaterMarks, make_router: Callable[[], Router]
) -> RouteSpec:
    """Return the route on which ``source`` passes on what destinations of ``route`` refuse.

    ``make_router`` makes a router that gives each message to one port of ``engine``.  If that port goes, another takes
    over; if there is none, messages wait for one.
    """
    return RouteSpec(
        name=f"{route} refused -> {engine}",
        source=source,
        targets=(engine,),
        make_router=make_router,
        one_of_many=True,
        make_filter=_nothing,
        marks=marks,
        confirm=True,
        takes_refused=True,
    )


def _nothing() -> Callable[[Envelope], bool]:
    return lambda _: False
