"""Delivery tags that are written over joined frames are those that each frame would get by itself."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from plugins.protocols.amqp091.tagged_frames import tagged_frames


@given(
    first=st.one_of(st.integers(1, 600), st.integers(65_000, 66_000), st.integers(1, (1 << 64) - 1000)),
    count=st.integers(1, 600),
    width=st.integers(1, 5),
)
# Every octet of the tag changes: one that is lost would give a client the tag of another message.
@example(first=(1 << 56) - 1, count=2, width=1)
@example(first=(1 << 24) - 300, count=600, width=1)
@example(first=255, count=1, width=1)
@example(first=256, count=256, width=1)
@example(first=1, count=70_000, width=1)
def test_each_message_has_its_tag(first: int, count: int, width: int) -> None:
    bodies = [bytes([number & 255]) * width for number in range(count)]
    frames = b"".join(
        b"before" + (first + number).to_bytes(8, "big") + b"behind" + body + b"\xce"
        for number, body in enumerate(bodies)
    )
    assert tagged_frames(b"before", first, b"behind", bodies, width) == frames


def test_views_are_joined_as_well() -> None:
    whole = memoryview(b"abcd")
    assert (
        tagged_frames(b"", 7, b"", [whole[:2], whole[2:]], 2)
        == b"\0\0\0\0\0\0\0\x07ab\xce\0\0\0\0\0\0\0\x08cd\xce"
    )
