"""Lines, whole and in pieces, good and bad."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kernel_lines.connection import LinesConnection
from kernel_lines.options import LinesOptions

from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.message import batch_of
from kernel.contracts.protocol import StreamProtocol
from kernel.testing.protocol_checks import PROTOCOL_CHECKS, ProtocolSubject


def _bodies(connection: LinesConnection, data: bytes) -> list[bytes]:
    return [body for batch in connection.receive_data(data, 0.0) for body in batch.bodies]


@pytest.mark.parametrize("check", PROTOCOL_CHECKS, ids=lambda check: check.__name__)
def test_it_passes_the_checks_that_every_protocol_has_to(check: Callable[[ProtocolSubject], Any]) -> None:
    batches = [
        batch_of([b"", b"1", b"x" * 300]),
        batch_of([b"of one size"] * 500),
        batch_of([b"large" * 10_000]),
    ]
    options = LinesOptions()
    check(
        ProtocolSubject(
            make=lambda: (LinesConnection(options), LinesConnection(options)), batches=batches, keys=False
        )
    )


def test_it_has_all_that_the_contract_asks_for() -> None:
    assert isinstance(LinesConnection(LinesOptions()), StreamProtocol)


@pytest.mark.parametrize("chunk", [1, 2, 3, 100])
def test_any_chunking_gives_the_same_messages(chunk: int) -> None:
    connection = LinesConnection(LinesOptions())
    stream = b"one\ntwo\r\n\nfour\n"
    bodies: list[bytes] = []
    for start in range(0, len(stream), chunk):
        bodies += _bodies(connection, stream[start : start + chunk])
    assert bodies == [b"one", b"two", b"", b"four"]


def test_what_one_side_sends_the_other_receives() -> None:
    ours, theirs = LinesConnection(LinesOptions()), LinesConnection(LinesOptions())
    ours.send_batches([batch_of([b"a", b"b"]), batch_of([(b"c", b"d")], multipart=True)], 0.0)
    assert _bodies(theirs, b"".join(ours.data_to_send())) == [b"a", b"b", b"cd"]


def test_a_line_that_is_too_long_is_the_peers_fault_and_earlier_ones_count() -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        LinesConnection(LinesOptions(max_line=3)).receive_data(b"one\nfour\n", 0.0)
    assert [list(batch.bodies) for batch in caught.value.batches] == [[b"one"]]


def test_a_line_that_never_ends_is_given_up() -> None:
    connection = LinesConnection(LinesOptions(max_line=3))
    connection.receive_data(b"abc", 0.0)
    with pytest.raises(RemoteProtocolError):
        connection.receive_data(b"d", 0.0)


def test_hanging_up_in_the_middle_of_a_line_is_the_peers_fault() -> None:
    connection = LinesConnection(LinesOptions())
    connection.receive_data(b"begun", 0.0)
    with pytest.raises(RemoteProtocolError):
        connection.receive_eof(0.0)
