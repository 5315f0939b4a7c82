"""AMQP 0-9-1 in captures: frames written by hand, and by pamqp, which shares nothing with us."""

from __future__ import annotations

from typing import Any

import pytest

from kernel.contracts.dissector import CLIENT, SERVER, Line
from plugins.dissectors.amqp091.dissector import AmqpDissector, find_boundary
from plugins.dissectors.amqp091.plugin import register_dissectors
from tests.peers import optional
from tests.plugins.dissectors.streams import Said, damaged, heard, names
from tests.seeds import many

body, commands, frame, header = (
    optional(f"pamqp.{name}") for name in ("body", "commands", "frame", "header")
)

pytestmark = pytest.mark.peer("pamqp")


def sent(channel: int, *said: Any) -> bytes:
    return b"".join(frame.marshal(each, channel) for each in said)


def message(data: bytes, **properties: Any) -> list[Any]:
    made = [header.ContentHeader(body_size=len(data), properties=commands.Basic.Properties(**properties))]
    return [*made, body.ContentBody(data)] if data else made


def conversation() -> Said:
    c = commands
    publish = c.Basic.Publish(exchange="feed", routing_key="a.b")
    return [
        (CLIENT, b"AMQP\0\0\x09\x01"),
        (SERVER, sent(0, c.Connection.Start(server_properties={"product": "a broker"}))),
        (CLIENT, sent(0, c.Connection.StartOk({"n": 1}, "PLAIN", "\0guest\0secret", "en_US"))),
        (SERVER, sent(0, c.Connection.Tune(2047, 131072, 60))),
        (CLIENT, sent(0, c.Connection.TuneOk(2047, 131072, 60), c.Connection.Open("/"))),
        (SERVER, sent(0, c.Connection.OpenOk())),
        (CLIENT, sent(3, c.Channel.Open())),
        (SERVER, sent(3, c.Channel.OpenOk())),
        (CLIENT, sent(3, c.Confirm.Select())),
        (SERVER, sent(3, c.Confirm.SelectOk())),
        (CLIENT, sent(3, publish, *message(b"hello", content_type="text/plain", headers={"x": 1}))),
        (CLIENT, sent(3, publish, *message(b""))),
        (SERVER, sent(3, c.Basic.Ack(2, True))),
        (SERVER, sent(3, c.Basic.Deliver("tag", 9, False, "feed", "a.b"), *message(b"12345678"))),
        (CLIENT, sent(3, c.Basic.Ack(9))),
        (SERVER, b"\x08\0\0\0\0\0\0\xce"),
    ]


SAID = conversation() if commands else []


def test_a_conversation_is_one_line_a_method_and_message() -> None:
    dissector = AmqpDissector()
    lines = heard(dissector, SAID)
    assert names(lines) == [
        "protocol header", "connection.start", "connection.start-ok", "connection.tune", "connection.tune-ok",
        "connection.open", "connection.open-ok", "channel.open", "channel.open-ok", "confirm.select",
        "confirm.select-ok", "basic.publish", "basic.publish", "basic.ack", "basic.deliver", "basic.ack", "heartbeat",
    ]  # fmt: skip
    assert lines[0] == Line("protocol header", {"version": "0-9-1"})
    assert lines[3].facts == {"channel": 0, "channel_max": 2047, "frame_max": 131072, "heartbeat": 60}
    published = {"channel": 3, "exchange": "feed", "routing_key": "a.b"}
    assert lines[11].facts == {**published, "bytes": 5, "content_type": "text/plain", "headers": {"x": 1}}
    assert lines[12].facts == {**published, "bytes": 0}
    assert lines[14].facts["bytes"] == 8
    figures = dissector.figures()
    assert (figures["frames_out"], figures["frames_in"], figures["methods"], figures["channels"]) == (
        11,
        10,
        15,
        1,
    )
    assert (figures["published"], figures["bytes_published"]) == (2, 5)
    assert (figures["delivered"], figures["bytes_delivered"], figures["acks"]) == (1, 8, 2)
    assert figures["confirm_max_ms"] == 1.0  # the ack came a millisecond after the second message
    assert (figures["malformed"], figures["skipped_bytes"]) == (0, 0)


@pytest.mark.parametrize("nowait", [False, True])
def test_confirms_are_counted_from_when_they_are_asked_for(nowait: bool) -> None:
    """A publisher need not wait for the answer, and there need not be one."""
    dissector = AmqpDissector()
    publish = sent(3, commands.Basic.Publish(exchange="feed", routing_key="a.b"), *message(b"hello"))
    dissector.receive(CLIENT, sent(3, commands.Confirm.Select(nowait=nowait)) + publish, 0.0)
    if not nowait:
        dissector.receive(SERVER, sent(3, commands.Confirm.SelectOk()), 1.0)
    dissector.receive(CLIENT, publish, 2.0)
    dissector.receive(SERVER, sent(3, commands.Basic.Ack(1)), 2.5)
    dissector.receive(SERVER, sent(3, commands.Basic.Ack(2)), 9.0)
    figures = dissector.figures()
    assert figures["confirm_max_ms"] == 7000.0
    assert figures["confirm_p50_ms"] == pytest.approx(2500, rel=0.05)


@pytest.mark.parametrize("hole", [9, 40])
def test_confirms_are_not_measured_after_a_message_that_could_not_be_read(hole: int) -> None:
    """Two bytes that were not captured, of a method or of a content header."""
    dissector = AmqpDissector()
    publish = sent(3, commands.Basic.Publish(exchange="feed", routing_key="a.b"), *message(b"hello"))
    dissector.receive(CLIENT, sent(3, commands.Confirm.Select()) + publish[:hole], 0.0)
    assert dissector.lose(CLIENT, 2, 0.0)[0].facts["in_step"]
    dissector.receive(CLIENT, publish[hole + 2 :], 0.0)
    dissector.receive(CLIENT, publish, 5.0)
    dissector.receive(SERVER, sent(3, commands.Basic.Ack(1)), 5.5)
    dissector.receive(SERVER, sent(3, commands.Basic.Ack(2)), 9.0)
    assert "confirm_max_ms" not in dissector.figures()


def test_passwords_are_not_shown() -> None:
    lines = heard(AmqpDissector(), SAID)
    assert lines[2].facts["response"] == "(13 bytes)"
    assert "secret" not in str(lines)


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_any_chunks_say_the_same(size: int) -> None:
    whole = heard(AmqpDissector(), SAID)
    cut = [(sender, data[at : at + size]) for sender, data in SAID for at in range(0, len(data), size)]
    assert heard(AmqpDissector(), cut) == whole


def test_what_was_not_captured_is_told_and_the_next_frame_found() -> None:
    dissector = AmqpDissector()
    heard(dissector, SAID[:10])
    first, second = SAID[10][1], SAID[11][1]
    assert dissector.receive(CLIENT, first[:20], 1.0) == []
    assert names(dissector.lose(CLIENT, 15, 1.1)) == ["bytes missing"]
    lines = dissector.receive(CLIENT, first[35:] + second, 1.2)
    assert names(lines) == [
        "in step again",
        "malformed",
        "basic.publish",
    ]  # half of the first message is left
    assert lines[2].facts["bytes"] == 0


def test_a_hole_inside_of_a_body_costs_nothing() -> None:
    dissector = AmqpDissector()
    large = sent(1, commands.Basic.Publish(), *message(b"x" * 10_000))
    assert dissector.receive(CLIENT, large[:500], 1.0) == []
    assert dissector.lose(CLIENT, 4000, 1.1) == [Line("bytes missing", {"bytes": 4000, "in_step": True})]
    (line,) = dissector.receive(CLIENT, large[4500:], 1.2)
    assert (line.what, line.facts["bytes"]) == ("basic.publish", 10_000)


def test_a_message_that_is_not_finished_is_told() -> None:
    dissector = AmqpDissector()
    begun = sent(1, commands.Basic.Publish(routing_key="k"), header.ContentHeader(body_size=10))
    lines = dissector.receive(CLIENT, begun + sent(1, commands.Channel.Close(200, "", 0, 0)), 1.0)
    assert lines[0] == Line(
        "basic.publish", {"channel": 1, "routing_key": "k", "bytes": 0, "incomplete": True}
    )
    dissector.receive(CLIENT, begun, 1.0)
    assert names(dissector.lose(CLIENT, 100, 1.0)) == ["bytes missing", "basic.publish"]


MALFORMED = {
    "no frame": (b"GET / HTTP/1.1\r\n", "unknown frame type 71"),
    "no protocol header either": (b"ABCDEFGH\1\0\0", "unknown frame type 65"),
    "no frame end": (b"\x08\0\0\0\0\0\0\xcd", "frame end is 0xcd, not 0xce"),
    "an unknown method": (b"\x01\0\1\0\0\0\4\x00\x3c\x03\xe7\xce", "an unknown method 003c03e7"),
    "half a method": (b"\x01\0\1\0\0\0\5\x00\x3c\x00\x0a\x00\xce", "basic.qos: "),
    "a header without a method": (b"\x02\0\1\0\0\0\2\x00\x3c\xce", "a content header on channel 1"),
    "a body without a header": (b"\x03\0\1\0\0\0\1x\xce", "a body on channel 1"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_wrong_is_named(name: str) -> None:
    data, why = MALFORMED[name]
    (line,) = AmqpDissector().receive(CLIENT, data, 0.0)
    assert line.what == "malformed"
    assert line.facts["why"].startswith(why)


def test_it_is_recognised_by_either_side() -> None:
    (kind,) = register_dissectors()
    assert kind.recognises(SAID[0][1])
    assert kind.recognises(SAID[1][1][:16])
    assert not kind.recognises(b"GET / HTTP/1.1\r\n")
    assert not kind.recognises(b"AMQP\3\1\0\0")  # AMQP 1.0


def test_bytes_of_messages_are_not_taken_for_frames() -> None:
    assert find_boundary(bytes(range(256)) * 20) == -1
    assert find_boundary(b"\x01" * 3000) == -1
    assert find_boundary(b"garbage" + SAID[9][1]) == 7


@pytest.mark.parametrize("seed", many(0, 20))
def test_damage_is_lines_and_nothing_else(seed: int) -> None:
    damaged(AmqpDissector, SAID, seed)
