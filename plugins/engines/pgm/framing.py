"""Framing: how messages are laid into the data of packets.  By the name that an address begins with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kernel.contracts.message import Batch
from plugins.engines.pgm.options import PgmOptions
from plugins.engines.pgm.zmtp1 import Zmtp1Decoder, Zmtp1Encoder
from plugins.protocols.backend.units import UnitDecoder, UnitEncoder


class Encoder(Protocol):
    """Of a source."""

    refused: int
    """Messages that could not be written."""
    problem: str
    """Why, of the last."""

    def encode(self, batches: Sequence[Batch]) -> list[bytes]:
        """Return the data of packets, or units that PGM cuts into fragments if they are larger."""
        ...


class Decoder(Protocol):
    """Of one source that is heard."""

    malformed: int
    """What could not be read."""

    def decode(self, units: Sequence[bytes | None]) -> list[Batch]:
        """Take consecutive units, None where some were lost; return what is complete."""
        ...


def make_encoder(name: str, options: PgmOptions, tsdu_size: int) -> Encoder:
    """Make one for packets with so many bytes of data."""
    if name == "zmtp1":
        return Zmtp1Encoder(tsdu_size, keys=options.keys == "part")
    return UnitEncoder(tsdu_size)


def make_decoder(name: str, options: PgmOptions) -> Decoder:
    """Make one for a source that has just been heard for the first time."""
    if name == "zmtp1":
        return Zmtp1Decoder(options.max_message, keys=options.keys == "part")
    return UnitDecoder(options.max_message)
