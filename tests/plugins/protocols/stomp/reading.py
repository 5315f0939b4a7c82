"""What the tests of the codec share."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from plugins.protocols.stomp.frame_reader import FrameReader
from plugins.protocols.stomp.frames import Frames
from plugins.protocols.stomp.limits import Limits
from plugins.protocols.stomp.versions import Version

Plain = tuple[str, dict[str, str], bytes, str | None, str | None]
"""A frame: command, headers, body, receipt, transaction."""


def reader_of(version: Version = Version.V1_2, **limits: int) -> FrameReader:
    reader = FrameReader(Limits(**limits))
    reader.version = version
    return reader


def read(reader: FrameReader, chunks: Iterable[bytes]) -> list[Frames]:
    """Return all frames of these chunks."""
    found: list[Frames] = []
    for chunk in chunks:
        reader.feed(chunk)
        while frames := reader.read():
            found += frames
    return found


def plain(found: Iterable[Frames]) -> list[Plain]:
    """Return single frames, however they were put together."""
    return [
        (each.command, dict(each.headers), body, dict(each.receipts).get(number), each.transaction)
        for each in found
        for number, body in enumerate(each.bodies, 1)
    ]


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    """Cut data at these places."""
    borders = [0, *sorted({place % (len(data) + 1) for place in places}), len(data)]
    return [data[start:stop] for start, stop in pairwise(borders)]
