"""The direct API (x-mode) as a plugin."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kernel import hookimpl
from kernel.contracts.kinds import ApiKind

if TYPE_CHECKING:
    from kernel.contracts.api import Api, ApiSetup


@hookimpl
def register_apis() -> Iterable[ApiKind]:
    """Register kind ``direct``."""
    return [
        ApiKind(
            name="direct",
            summary="one connection in the application's own thread: the lowest latency (x-mode)",
            options="plugins.apis.direct.options:DirectOptions",
            create=_create,
            routed=False,
        )
    ]


def _create(setup: ApiSetup) -> Api:
    from plugins.apis.direct.channel import open_direct

    return open_direct(setup.make_protocol, setup.name, setup.options)
