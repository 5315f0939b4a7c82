"""What this folder adds to the kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernel import hookimpl
from kernel.contracts.kinds import KindGroup
from plugins.engines.broker.contract import FRONT_ENDS, FrontEndKind, FrontEndSetup

if TYPE_CHECKING:
    from plugins.engines.broker.contract import FrontEnd


@hookimpl
def register_kind_groups() -> list[KindGroup[Any]]:
    """Announce the front ends: the broker's own plugin may not be loaded."""
    return [FRONT_ENDS]


@hookimpl
def register_front_ends() -> list[FrontEndKind]:
    """Offer STOMP to brokers."""
    return [
        FrontEndKind(
            name="stomp",
            summary="STOMP 1.0, 1.1 and 1.2, with the destinations of RabbitMQ's plugin",
            options="plugins.engines.stomp.options:StompListenerOptions",
            create=_create,
        )
    ]


def _create(setup: FrontEndSetup) -> FrontEnd:
    from plugins.engines.stomp.front_end import make_front_end

    return make_front_end(setup.engine, setup.options)
