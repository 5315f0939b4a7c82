"""Framing: how messages are mapped to the data of packets, named by the first word of an address."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kernel.contracts.message import Batch
from plugins.engines.pgm.options import PgmOptions
from plugins.engines.pgm.zmtp1 import Zmtp1Decoder, Zmtp1Encoder
from plugins.protocols.backend.units import UnitDecoder, UnitEncoder


class Encoder(Protocol):
    """The encoder of a source."""

    refused: int
    """Messages that could not be encoded."""
    problem: str
    """The reason for the last of them."""

    def encode(self, batches: Sequence[Batch]) -> list[bytes]:
        """Return the data of packets; PGM fragments what is larger than a packet."""
        ...

    def encode_one(self, body: bytes) -> bytes | None:
        """Return what ``encode`` returns for one message under the empty envelope, if that is one unit.

        None: ask ``encode``.  Changes nothing.
        """
        ...


class Decoder(Protocol):
    """The decoder of one source."""

    malformed: int
    """Units or messages that could not be decoded."""

    def decode(self, units: Sequence[bytes | None]) -> list[Batch]:
        """Process consecutive units, None where some were lost; return the complete batches."""
        ...

    def decode_one(self, unit: bytes) -> bytes | None:
        """Return the body if the next unit is one message under the empty envelope and nothing else.

        None: it has to be decoded.  Changes nothing.
        """
        ...


def make_encoder(name: str, options: PgmOptions, tsdu_size: int) -> Encoder:
    """Return an encoder for packets with so many bytes of data."""
    if name == "zmtp1":
        return Zmtp1Encoder(tsdu_size, keys=options.keys == "part")
    return UnitEncoder(tsdu_size)


def make_decoder(name: str, options: PgmOptions) -> Decoder:
    """Return a decoder for a source that was heard for the first time."""
    if name == "zmtp1":
        return Zmtp1Decoder(options.max_message, keys=options.keys == "part")
    return UnitDecoder(options.max_message)
