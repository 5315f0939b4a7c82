"""The sockets API as a plugin."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kernel import hookimpl
from kernel.contracts.kinds import ApiKind

if TYPE_CHECKING:
    from kernel.contracts.api import Api, ApiSetup


@hookimpl
def register_apis() -> Iterable[ApiKind]:
    """Offer the port of a socket.  ``kernel.sockets.Context`` opens it."""
    return [
        ApiKind(
            name="sockets",
            summary="the application's end of a socket of ØMQ; kernel.sockets.Context makes them",
            options="plugins.apis.sockets.options:PortOptions",
            create=_create,
        )
    ]


def _create(setup: ApiSetup) -> Api:
    from plugins.apis.sockets.end import End, PublishingEnd

    kind = PublishingEnd if setup.options.publishes else End
    return kind(setup.name, setup.join)
