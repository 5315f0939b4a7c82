"""The ticker as a plugin.  Light: what it needs to work is imported when an engine is made."""

from __future__ import annotations

from collections.abc import Iterable

from kernel import hookimpl
from kernel.contracts.engine import Engine
from kernel.contracts.kinds import EngineKind, EngineSetup, Table
from kernel_ticker.options import TickerOptions

REQUIRES_API_LEVEL = 1


@hookimpl
def register_engines() -> Iterable[EngineKind]:
    """Offer kind ``ticker``."""
    return [
        EngineKind(
            name="ticker",
            summary="a message every so many seconds",
            options=TickerOptions,
            create=_create,
            tables=(
                Table(
                    name="tickers",
                    title="List the tickers of a running system: what they say, and how often they did.",
                    columns=("text", "seconds", "messages_out"),
                ),
            ),
        ),
    ]


def _create(setup: EngineSetup) -> Engine:
    from kernel_ticker.engine import Ticker

    return Ticker(setup.name, setup.options)
