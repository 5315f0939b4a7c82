"""The direct API (x-mode) as a plugin."""

from __future__ import annotations

from collections.abc import Iterable

from kernel import hookimpl
from kernel.contracts.api import Api, ApiSetup
from kernel.contracts.kinds import ApiKind
from plugins.apis.direct.options import DirectOptions


@hookimpl
def register_apis() -> Iterable[ApiKind]:
    """Register kind ``direct``."""
    return [
        ApiKind(
            name="direct",
            summary="one connection in the application's own thread: the lowest latency (x-mode)",
            options=DirectOptions,
            create=_create,
            routed=False,
        )
    ]


def _create(setup: ApiSetup) -> Api:
    from plugins.apis.direct.channel import open_direct

    return open_direct(setup.make_protocol, setup.name, setup.options)
