"""The PGM engine as a plugin."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kernel import hookimpl
from kernel.contracts.assurance import Assurance
from kernel.contracts.engine import Engine
from kernel.contracts.kinds import EngineKind, EngineSetup, Flow


@hookimpl
def register_engines() -> Iterable[EngineKind]:
    """Offer kinds ``pgm`` and ``one-to-many``."""
    return [
        EngineKind(
            name="pgm",
            summary="reliable multicast (RFC 3208) over IP or UDP; to and from libzmq's pgm and epgm",
            options="plugins.engines.pgm.options:PgmOptions",
            create=_create,
            flow=_flow,
            assures=_assures,
        ),
        EngineKind(
            name="one-to-many",
            summary="a feed over TCP to few receivers, by multicast (PGM) to many, changing without loss",
            options="plugins.engines.pgm.one_to_many.options:OneToManyOptions",
            create=_create_one_to_many,
            flow=_flow,
            assures=_assures_one_to_many,
        ),
    ]


def _flow(options: Any) -> Flow:
    """PGM has one direction."""
    return Flow(
        takes=options.mode == "send",
        gives=options.mode == "receive",
        alone=False,
        why=f'mode = "{options.mode}"',
    )


def _assures(options: Any) -> Assurance:
    return Assurance(confirms="sent", how="PGM has no acknowledgements: the operating system has its packets")


def _assures_one_to_many(options: Any) -> Assurance:
    if options.mode == "receive":
        return Assurance(acknowledges="ACK to the sender of the feed", waits=True)
    return Assurance(
        confirms="peer",
        how="all its receivers confirm it",
        but="who is no receiver at the time does not get it",
    )


def _create(setup: EngineSetup) -> Engine:
    from plugins.engines.pgm.listener import PgmReceiver
    from plugins.engines.pgm.sender import PgmSender

    return PgmSender(setup) if setup.options.mode == "send" else PgmReceiver(setup)


def _create_one_to_many(setup: EngineSetup) -> Engine:
    from plugins.engines.pgm.one_to_many.receiver import OneToManyReceiver
    from plugins.engines.pgm.one_to_many.sender import OneToManySender

    return OneToManySender(setup) if setup.options.mode == "send" else OneToManyReceiver(setup)
