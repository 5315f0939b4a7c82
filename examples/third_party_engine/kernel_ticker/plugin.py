"""The ticker as a plugin.  Light: what it needs to work is imported when an engine is made."""

from __future__ import annotations

from collections.abc import Iterable

from kernel import hookimpl
from kernel.contracts.engine import Engine
from kernel.contracts.kinds import EngineKind, EngineSetup
from kernel_ticker.options import TickerOptions

REQUIRES_API_LEVEL = 1


@hookimpl
def register_engines() -> Iterable[EngineKind]:
    """Offer kind ``ticker``."""
    return [
        EngineKind(
            name="ticker", summary="a message every so many seconds", options=TickerOptions, create=_create
        ),
    ]


def _create(setup: EngineSetup) -> Engine:
    from kernel_ticker.engine import Ticker

    return Ticker(setup.name, setup.options)
