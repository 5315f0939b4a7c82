"""Messages, runs and lent buffers."""

from __future__ import annotations

import array
import gc

from kernel.contracts.loan import lend
from kernel.contracts.message import PLAIN, Envelope, Message, messages_of, run_of


def test_a_run_knows_its_size_in_bytes() -> None:
    assert run_of([b"ab", b"c"]).size == 3
    assert run_of([(b"ab", b"c"), (b"d",)], multipart=True).size == 4
    assert len(run_of([b"ab", b"c"])) == 2


def test_a_slice_is_a_run_of_its_own() -> None:
    envelope = Envelope(key="k")
    part = run_of([b"a", b"bb", b"ccc"], envelope).slice(1, 3)
    assert (list(part.bodies), part.size, part.envelope) == ([b"bb", b"ccc"], 5, envelope)


def test_envelopes_are_equal_only_to_themselves() -> None:
    assert Envelope(key="k") != Envelope(key="k")
    assert len({Envelope(), Envelope(), PLAIN, PLAIN}) == 3


def test_the_body_of_a_multipart_message_is_its_parts_joined() -> None:
    (message,) = messages_of(run_of([(b"a", memoryview(b"bc"))], Envelope(key="k"), multipart=True))
    assert (message.body, message.parts, message.key) == (b"abc", (b"a", b"bc"), "k")
    assert bytes(Message(memoryview(b"x"))) == b"x"


def test_a_lent_buffer_is_given_back_once_when_nobody_holds_it() -> None:
    returned: list[int] = []
    buffer = bytearray(b"mine")
    view = lend(buffer, lambda: returned.append(1))
    again = view
    del view
    assert returned == []
    del again
    gc.collect()
    assert returned == [1]


def test_a_lent_buffer_counts_in_bytes_whatever_its_items_are() -> None:
    returned: list[int] = []
    view = lend(array.array("i", [1, 2, 3]), lambda: returned.append(1))  # type: ignore[arg-type]
    assert len(view) == 12
    assert not returned
    del view
    assert returned == [1]
