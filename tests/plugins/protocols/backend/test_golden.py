"""The page is right: its bytes mean what it says, both ways."""

from __future__ import annotations

import pytest

from kernel.contracts.message import PLAIN, Batch, Envelope, batch_of
from kernel.contracts.mixed_batch import MixedBatch, mixed_batch
from plugins.protocols.backend.connection import BackendConnection
from plugins.protocols.backend.frames import Control
from tests.notes import for_each
from tests.plugins.protocols.backend.conversation import Questions, exchange, make, opened, plain, sent
from tests.plugins.protocols.backend.golden import PAGE, Example, read_examples

EXAMPLES = read_examples()
MESSAGES = [example for example in EXAMPLES if example.what in ("message", "parts")]
OLD = [example for example in MESSAGES if example.data[:1] != b"\xff" or example.data[1] < 0x80]
CONTROLS = [
    example for example in EXAMPLES if example.what not in ("message", "parts", "mixed", "keyed", "greeting")
]


def meaning(example: Example) -> tuple[object, str]:
    """What a message example says is received."""
    words, _, key = " ".join(example.words).partition(" key ")
    if example.what == "parts":
        return tuple(word.encode() for word in words.split(" ")[1:]), key
    return example.words[1].encode(), key


def test_the_page_has_an_example_of_every_frame() -> None:
    first = {
        example.data[1] & 0x7F
        for example in EXAMPLES
        if example.data[:1] == b"\xff" and example.data[1] & 0x80
    }
    assert first == set(Control)
    assert len(OLD) >= 4
    text = PAGE.read_text()
    for control in Control:
        assert f"| {control.value} | {control.name} |" in text


@pytest.mark.parametrize("example", OLD, ids=lambda example: example.name)
def test_messages_of_the_old_format(example: Example) -> None:
    reader, writer = make(format="0.x"), make("client", format="0.x")
    assert plain(reader.receive_data(example.data, 0)) == [meaning(example)]
    writer.send_batches([batch_of([meaning(example)[0]])], 0)
    assert sent(writer) == example.data


def test_messages_of_the_extension_in_the_order_of_the_page() -> None:
    """In their order, since envelopes are remembered."""
    client, server = opened()
    envelopes = {"": PLAIN, "k": Envelope(key="k")}
    for example in MESSAGES:
        expected = meaning(example)
        assert plain(server.receive_data(example.data, 0)) == [expected], example.name
        batch = batch_of([expected[0]], envelopes[expected[1]], multipart=example.what == "parts")
        client.send_batches([batch], 0)
        assert sent(client) == example.data, example.name


def test_the_greeting() -> None:
    (example,) = [each for each in EXAMPLES if each.what == "greeting"]
    assert sent(make("client")) == example.data
    server = make()
    server.receive_data(example.data, 0)
    assert server.ready_to_send()
    assert sent(server) == example.data


def test_messages_under_an_envelope_each() -> None:
    (example,) = [each for each in EXAMPLES if each.what == "mixed"]
    bodies, keys = example.words[1::2], example.words[2::2]
    envelopes = {"": PLAIN, **{key: Envelope(key=key) for key in keys if key}}
    client, server = opened()
    # The envelope that has the number 0 on the page.
    client.send_batches([batch_of([b"3"], envelopes["k"])], 0)
    server.receive_data(sent(client), 0)
    got = server.receive_data(example.data, 0)
    assert plain(got) == [(body.encode(), key) for body, key in zip(bodies, keys, strict=True)]
    assert got[0].envelope is got[2].envelope
    client.send_batches(
        [batch_of([body.encode()], envelopes[key]) for body, key in zip(bodies, keys, strict=True)], 0
    )
    assert sent(client) == example.data


def test_messages_with_a_key_each() -> None:
    (example,) = [each for each in EXAMPLES if each.what == "keyed"]
    bodies, keys = [word.encode() for word in example.words[1::2]], example.words[2::2]
    client, server = opened()
    client.send_batches([mixed_batch(bodies, keys)], 0)
    assert sent(client) == example.data
    assert plain(server.receive_data(example.data, 0)) == list(zip(bodies, keys, strict=True))
    server.mixing = True
    (got,) = server.receive_data(example.data, 0)
    assert type(got) is MixedBatch
    assert (got.bodies, got.entries, got.size) == (bodies, list(keys), 2)


@for_each("example", CONTROLS, ids=lambda example: example.name)
def test_control_frames_are_written_as_the_page_says(example: Example) -> None:
    client, server = opened()
    assert _write(example, client, server) == example.data


def _write(example: Example, client: BackendConnection, server: BackendConnection) -> bytes:
    argument = example.words[1] if len(example.words) > 1 else ""
    if example.what == "want_confirm":
        client.want_confirm()
    elif example.what == "confirm":
        server.want_confirm()
        server.send_batches([batch_of([b"x"] * 9)], 0)
        client.receive_data(sent(server), 0)
        client.confirm(int(argument))
    elif example.what == "ping":
        client.handle_timeout(10.0)
    elif example.what == "pong":
        client.receive_data(b"\xff\x86\x00\x00\x00\x00\x00\x00\x02" + argument.encode(), 0)
    elif example.what == "close":
        client.close(argument, 0)
    elif example.what == "sync":
        client.sync(int(argument), int(example.words[3]))
    elif example.what == "synced":
        server.sync(int(argument), 0)
        client.receive_data(sent(server), 0)
        client.answer_sync(int(argument))
    else:
        getattr(client, example.what)(argument)
    return sent(client)


@for_each("example", CONTROLS, ids=lambda example: example.name)
def test_control_frames_are_read_as_the_page_says(example: Example) -> None:
    questions = Questions()
    client, server = opened(questions=questions)
    server.send_batches([Batch([b"x"] * 9, 9)], 0)
    server.sync(7, 0)
    exchange(server, client)
    questions.asked.clear()
    assert server.receive_data(example.data, 1) == []
    argument = example.words[1] if len(example.words) > 1 else ""
    if example.what == "want_confirm":
        server.confirm(3)
        assert sent(server)
    elif example.what == "confirm":
        assert server.confirmed() == int(argument)
    elif example.what == "ping":
        assert sent(server) == b"\xff\x87" + bytes(7)
    elif example.what == "close":
        assert server.closed()
    elif example.what == "sync":
        assert questions.asked == [(int(argument), int(example.words[3]))]
        server.answer_sync(int(argument))
        assert sent(server) == b"\xff\x8d" + (8).to_bytes(7, "big") + example.data[9:17]
    elif example.what == "synced":
        assert questions.answered == [int(argument)]
    elif example.what != "pong":
        assert server.subscriptions == [(example.what, argument)]
