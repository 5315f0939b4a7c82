"""SYNC and SYNCED in a conversation: who is asked, what stays open, what a peer without them sees."""

from __future__ import annotations

import pytest

from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.protocol import Syncing
from plugins.protocols.backend.connection import OPEN_SYNCS, BackendConnection
from plugins.protocols.backend.frames import Control, control_frame
from plugins.protocols.backend.options import BackendOptions
from tests.plugins.protocols.backend.conversation import Questions, exchange, make, opened, sent

OLD_GREETING = bytes.fromhex(
    "ff8100000000000052"
    "86"
    "a776657273696f6e01"
    "a7636f6e6669726dc3"
    "a9686561727462656174cd2710"
    "ab6d61785f6d657373616765ce10000000"
    "a9656e76656c6f706573cd0400"
    "ae656e76656c6f70655f6279746573ce00400000"
)
"""What a kernel sends that does not know SYNC."""


def sync(number: int, hops: int = 0) -> bytes:
    return control_frame(Control.SYNC, number.to_bytes(8, "big") + bytes((hops,)))


def test_a_question_follows_the_subscriptions_that_it_is_about() -> None:
    questions = Questions()
    client, server = make("client"), make(questions=questions)
    exchange(client, server)
    client.subscribe("a")
    client.sync(1, 3)
    client.subscribe("b")
    data = sent(client)
    assert data.index(b"\xff\x88") < data.index(b"\xff\x8c") < data.rindex(b"\xff\x88")
    server.receive_data(data, 0)
    assert questions.asked == [(1, 3)]
    assert server.subscriptions == [("subscribe", "a"), ("subscribe", "b")]


def test_answers_come_in_any_order_and_once_each() -> None:
    questions = Questions()
    client, server = make("client", questions), make()
    exchange(client, server)
    for number in (1, 2, 2**64 - 1):
        client.sync(number, 0)
    exchange(client, server)
    for number in (2**64 - 1, 1, 1, 7, 2):
        server.answer_sync(number)
    exchange(client, server)
    assert questions.answered == [2**64 - 1, 1, 2]


def test_a_number_may_be_used_again_once_it_is_answered() -> None:
    questions = Questions()
    _, server = opened(questions=questions)
    for _ in range(3 * OPEN_SYNCS):
        server.receive_data(sync(5), 0)
        server.answer_sync(5)
    assert len(questions.asked) == 3 * OPEN_SYNCS


def test_a_peer_may_have_so_many_questions_open_and_no_more() -> None:
    questions = Questions()
    _, server = opened(questions=questions)
    for number in range(OPEN_SYNCS):
        server.receive_data(sync(number), 0)
    with pytest.raises(RemoteProtocolError, match="more than 64 SYNC"):
        server.receive_data(sync(OPEN_SYNCS), 0)
    assert len(questions.asked) == OPEN_SYNCS


def test_an_answer_to_nothing_ends_the_conversation() -> None:
    client, server = opened()
    client.sync(1, 0)
    exchange(client, server)
    answer = control_frame(Control.SYNCED, (1).to_bytes(8, "big"))
    client.receive_data(answer, 0)
    with pytest.raises(RemoteProtocolError, match="SYNCED 1, which"):
        client.receive_data(answer, 0)


def test_a_kernel_that_does_not_know_it_is_not_asked() -> None:
    client = make("client")
    assert b"\xa4sync\x01" in sent(client)
    client.receive_data(OLD_GREETING, 0)
    assert client.ready_to_send()
    assert not client.can_sync()


def test_a_host_that_does_not_take_part_says_so() -> None:
    client, server = BackendConnection(BackendOptions(), "client"), make()
    client.handle_timeout(0)
    exchange(client, server)
    assert not server.can_sync()
    with pytest.raises(RemoteProtocolError, match="does not offer"):
        client.receive_data(sync(1), 0)


@pytest.mark.parametrize("side", ["client", "server"])
def test_the_greeting_is_sent_once_with_the_offer(side: str) -> None:
    greeting = sent(make(side, format="extended"))
    assert greeting.count(b"\xff\x81") == 1
    assert b"\xa4sync\x01" in greeting


def test_a_peer_of_the_old_format_is_not_asked() -> None:
    server = make()
    server.receive_data(b"\x01x", 0)
    assert not server.can_sync()
    server.sync(1, 0)
    assert sent(server) == b""


def test_nothing_is_said_after_the_end() -> None:
    client, server = opened()
    client.sync(1, 0)
    exchange(client, server)
    server.close("done", 0)
    sent(server)
    server.answer_sync(1)
    server.sync(1, 0)
    assert sent(server) == b""


def test_it_is_a_protocol_that_takes_part() -> None:
    assert isinstance(make(), Syncing)
