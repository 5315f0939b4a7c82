"""A message that comes alone: the same as one that comes in pieces, whatever its form and the limits are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.message import Batch
from plugins.protocols.zmtp.decoder import Decoder
from plugins.protocols.zmtp.frames import FRAMINGS, MORE


def decoder(version: int, *, max_message: int = 1000, max_parts: int = 10, open_: bool = True) -> Decoder:
    made = Decoder(FRAMINGS[version], max_message, max_parts, lambda _: None, lambda _: None)
    made.max_command = 512
    made.messages_allowed = open_
    if version < 3:
        # The identity of the peer.
        made.decode(FRAMINGS[version].frame(b""))
    return made


def outcome(end: Decoder, pieces: list[bytes]) -> tuple[list[Batch], str, bool]:
    batches: list[Batch] = []
    try:
        for piece in pieces:
            batches += end.decode(piece)
    except RemoteProtocolError as error:
        return batches, str(error), False
    return batches, "", end.in_message()


@given(
    version=st.sampled_from([1, 2, 3]),
    parts=st.lists(st.one_of(st.just(b""), st.binary(max_size=300)), min_size=1, max_size=3),
    flags=st.sampled_from([0, 0, 0, 1, 4, 8]),
    cut=st.integers(0, 4),
    max_message=st.sampled_from([100, 1000]),
    max_parts=st.integers(1, 3),
    open_=st.booleans(),
)
def test_it_is_what_its_pieces_are(
    version: int,
    parts: list[bytes],
    flags: int,
    cut: int,
    max_message: int,
    max_parts: int,
    open_: bool,
) -> None:
    framing = FRAMINGS[version]
    data = b"".join(framing.frame(part, MORE) for part in parts[:-1]) + framing.frame(parts[-1], flags)
    data = data[: len(data) - cut]
    limits = {"max_message": max_message, "max_parts": max_parts}
    if version < 3:
        open_ = True
    whole = outcome(decoder(version, open_=open_, **limits), [data])
    pieces = outcome(decoder(version, open_=open_, **limits), [data[at : at + 1] for at in range(len(data))])
    assert [(batch.bodies, batch.size, batch.width, batch.multipart) for batch in whole[0]] == [
        (batch.bodies, batch.size, batch.width, batch.multipart) for batch in pieces[0]
    ]
    # How much of a message is there when it is refused differs.
    assert (whole[1][:12], whole[2]) == (pieces[1][:12], pieces[2])


@pytest.mark.parametrize("size", [0, 1, 255])
def test_behind_an_empty_part_it_is_a_message_of_two(size: int) -> None:
    body = b"x" * size
    (batch,) = decoder(3).decode(bytes((1, 0, 0, size)) + body)
    assert (batch.bodies, batch.size, batch.multipart) == ([(b"", body)], size, True)
