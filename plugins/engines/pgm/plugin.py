"""The PGM engine as a plugin."""

from __future__ import annotations

from collections.abc import Iterable

from kernel import hookimpl
from kernel.contracts.engine import Engine
from kernel.contracts.kinds import EngineKind, EngineSetup


@hookimpl
def register_engines() -> Iterable[EngineKind]:
    """Offer kind ``pgm``."""
    from plugins.engines.pgm.options import PgmOptions

    return [
        EngineKind(
            name="pgm",
            summary="reliable multicast (RFC 3208) over IP or UDP; to and from libzmq's pgm and epgm",
            options=PgmOptions,
            create=_create,
        )
    ]


def _create(setup: EngineSetup) -> Engine:
    from plugins.engines.pgm.listener import PgmReceiver
    from plugins.engines.pgm.sender import PgmSender

    return PgmSender(setup) if setup.options.mode == "send" else PgmReceiver(setup)
