"""The direct API (x-mode) as a plugin."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kernel import hookimpl
from kernel.contracts.kinds import ApiKind
from plugins.apis.direct.options import DirectOptions


@hookimpl
def register_apis() -> Iterable[ApiKind]:
    """Offer kind ``direct``."""
    return [
        ApiKind(
            name="direct",
            summary="one connection in the application's own thread: the lowest latency (x-mode)",
            options=DirectOptions,
            create=_create,
        )
    ]


def _create(kernel: Any, name: str, options: Any) -> Any:
    from plugins.apis.direct.channel import open_direct

    return open_direct(kernel.registry, name, options)
