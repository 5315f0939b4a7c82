"""The backend protocol in captures: golden bytes of ``docs/backend_protocol.md``, and two real ends in memory."""

from __future__ import annotations

from typing import Any

import pytest

from kernel.contracts.dissector import CLIENT, SERVER, Line
from kernel.contracts.message import Envelope, batch_of
from plugins.dissectors.backend.dissector import BackendDissector
from plugins.dissectors.backend.plugin import register_dissectors
from plugins.protocols.backend.connection import BackendConnection
from plugins.protocols.backend.frames import Control, control_frame
from plugins.protocols.backend.greeting import encode_envelope
from plugins.protocols.backend.options import BackendOptions
from tests.notes import for_each
from tests.plugins.dissectors.streams import Said, damaged, heard, names
from tests.seeds import many


def conversation() -> Said:
    """A client that publishes under an envelope to a server that confirms."""
    client, server = (BackendConnection(BackendOptions(), side) for side in ("client", "server"))
    said: list[tuple[int, bytes]] = []

    def exchange() -> None:
        for _ in range(4):
            for sender, ours, theirs in ((CLIENT, client, server), (SERVER, server, client)):
                data = b"".join(bytes(each) for each in ours.data_to_send())
                if data:
                    said.append((sender, data))
                    theirs.receive_data(data, 0.0)

    exchange()
    client.want_confirm()
    client.send_batches([batch_of([b"one", b"two"])], 0.0)
    client.send_batches([batch_of([b"x" * 300], Envelope(key="a.b", persistent=True))], 0.0)
    client.send_batches([batch_of([(b"a", b"bc")], Envelope(key="a.b"), multipart=True)], 0.0)
    exchange()
    server.confirm(4)
    exchange()
    client.close("enough", 0.0)
    exchange()
    return said


SAID = conversation()


def test_two_ends_in_memory() -> None:
    dissector = BackendDissector()
    lines = heard(dissector, SAID)
    assert [(line.what, dict(line.facts)) for line in lines if line.what != "GREETING"] == [
        ("WANT_CONFIRM", {}),
        ("messages", {"count": 2, "bytes": 6}),
        ("ENVELOPE", {"number": 0, "key": "a.b", "persistent": True}),
        ("messages", {"count": 1, "bytes": 300, "key": "a.b", "persistent": True}),
        ("ENVELOPE", {"number": 1, "key": "a.b"}),
        ("messages", {"count": 1, "bytes": 5, "key": "a.b"}),
        ("PARTS", {"parts": 2, "bytes": 5}),
        ("CONFIRM", {"count": 4}),
        ("CLOSE", {"reason": "enough"}),
    ]
    assert [line.facts["version"] for line in lines if line.what == "GREETING"] == [1, 1]
    figures = dissector.figures()
    assert (figures["messages_out"], figures["bytes_out"], figures["messages_in"]) == (4, 311, 0)
    assert figures["confirm_max_ms"] == 1.0  # told in the next piece, a millisecond later
    assert (figures["control_frames"], figures["malformed"]) == (7, 0)


GOLDEN: dict[str, tuple[bytes, list[tuple[str, dict[str, Any]]]]] = {
    "short and long": (
        b"\x05hello" + b"\x00" + b"\xff" + (256).to_bytes(8, "big") + bytes(256),
        [("messages", {"count": 3, "bytes": 261})],
    ),
    "the longest short one": (b"\xfe" + bytes(254), [("messages", {"count": 1, "bytes": 254})]),
    "a ping among messages": (
        b"\x01a" + b"\xff\x86" + bytes(6) + b"\x02hi" + b"\x01b",
        [
            ("messages", {"count": 1, "bytes": 1}),
            ("PING", {}),
            ("messages", {"count": 1, "bytes": 1}),
        ],
    ),
    "a subscription": (b"\xff\x88" + bytes(6) + b"\x03a.#", [("SUBSCRIBE", {"pattern": "a.#"})]),
    "an envelope that was not captured": (
        b"\xff\x83" + bytes(6) + b"\x04\0\0\0\x07" + b"\x01a",
        [("USE", {"number": 7}), ("messages", {"count": 1, "bytes": 1, "envelope": "not captured"})],
    ),
    "a type of a later version": (b"\xff\xa0" + bytes(6) + b"\x01x", [("control 32", {"bytes": 1})]),
    "a control frame that is too large": (
        b"\xff\x86" + b"\0\0\0\x7f\0\0\0",
        [("malformed", {"why": "a control frame of 2130706432 bytes (type 6)"})],
    ),
    "an envelope that is none": (
        b"\xff\x82" + bytes(6) + b"\x05\0\0\0\0\xc1" + b"\x01a",
        [
            ("malformed", {"why": "malformed envelope"}),
            ("messages", {"count": 1, "bytes": 1, "envelope": "not captured"}),
        ],
    ),
    "messages under an envelope each": (
        b"\xff\x8e" + bytes(6) + b"\x11\x92\x92\xc4\x01a\xc4\x02bc\x92\x81\xa3key\xa0\xc0",
        [("MIXED", {"count": 2, "bytes": 3})],
    ),
    "parts that do not fill their frame": (
        b"\xff\x84" + bytes(6) + b"\x02\x05a",
        [
            ("malformed", {"why": "parts that do not fill their frame"}),
            ("messages", {"count": 1, "bytes": 2}),
        ],
    ),
}


@for_each("name", GOLDEN)
def test_bytes_as_the_specification_has_them(name: str) -> None:
    data, expected = GOLDEN[name]
    lines = BackendDissector().receive(CLIENT, data, 0.0)
    assert names(lines) == [what for what, _ in expected]
    for line, (_, facts) in zip(lines, expected, strict=True):
        assert line.facts == facts or str(line.facts["why"]).startswith(facts["why"])


def test_after_a_hole_it_goes_on_with_the_next_whole_segment() -> None:
    dissector = BackendDissector()
    assert names(dissector.receive(CLIENT, b"\x05hello\x20and this", 0.0)) == ["messages"]
    assert dissector.lose(CLIENT, 100, 0.1) == [Line("bytes missing", {"bytes": 100, "in_step": False})]
    assert dissector.receive(CLIENT, b"of something", 0.2) == []
    lines = dissector.receive(CLIENT, b"\x01a\x02bc", 0.3)
    assert lines[0] == Line("in step again", {"skipped": 21})
    assert lines[1].facts == {"count": 2, "bytes": 3, "envelope": "not captured"}


def _confirmation(count: int) -> bytes:
    return control_frame(Control.CONFIRM, count.to_bytes(8, "big"))


def test_confirmations_are_not_measured_by_messages_of_which_some_were_missed() -> None:
    """What a CONFIRM counts began before: nobody knows which of the messages that were seen it means."""
    dissector = BackendDissector()
    for sender in (CLIENT, SERVER):
        dissector.lose(sender, None, 0.0)
    dissector.receive(CLIENT, b"\x01a", 1.0)
    dissector.receive(SERVER, _confirmation(1000), 1.1)
    dissector.receive(SERVER, _confirmation(1001), 9.0)
    assert "confirm_max_ms" not in dissector.figures()


def _envelope(number: int, key: str) -> bytes:
    payload = number.to_bytes(4, "big") + encode_envelope(Envelope(key=key))
    return control_frame(Control.ENVELOPE, payload)


def _messages(dissector: BackendDissector, data: bytes) -> dict[str, Any]:
    (facts,) = [line.facts for line in dissector.receive(CLIENT, data, 0.0) if line.what == "messages"]
    return dict(facts)


@pytest.mark.parametrize("upto", [10, 14, 16])
def test_of_an_envelope_with_a_hole_in_it_nothing_is_said(upto: int) -> None:
    """Least of all that the one before holds for what follows."""
    use = control_frame(Control.USE, (0).to_bytes(4, "big"))
    unknown = {"count": 1, "bytes": 1, "envelope": "not captured"}
    dissector = BackendDissector()
    assert _messages(dissector, _envelope(0, "a.b") + b"\x01x")["key"] == "a.b"
    other = _envelope(0, "others")
    dissector.receive(CLIENT, other[:upto], 0.0)
    dissector.lose(CLIENT, 2, 0.0)
    assert _messages(dissector, other[upto + 2 :] + b"\x01x") == unknown
    assert _messages(dissector, use + b"\x01x") == unknown


def test_an_envelope_that_is_too_large_to_be_kept_is_not_the_one_before_it() -> None:
    dissector = BackendDissector()
    assert _messages(dissector, _envelope(0, "a.b") + b"\x01x")["key"] == "a.b"
    large = _envelope(1, "k" * 70_000)
    assert _messages(dissector, large + b"\x01x")["envelope"] == "not captured"
    use = control_frame(Control.USE, (0).to_bytes(4, "big"))
    assert _messages(dissector, use + b"\x01x")["key"] == "a.b"


def test_questions_and_answers_about_subscriptions_are_shown() -> None:
    dissector = BackendDissector()
    lines = heard(
        dissector,
        [
            (CLIENT, control_frame(Control.SYNC, (7).to_bytes(8, "big") + b"\x0f")),
            (SERVER, control_frame(Control.SYNCED, (7).to_bytes(8, "big"))),
        ],
    )
    assert [(line.what, dict(line.facts)) for line in lines] == [
        ("SYNC", {"number": 7, "hops": 15}),
        ("SYNCED", {"number": 7}),
    ]


def test_it_is_recognised_by_its_greeting() -> None:
    (kind,) = register_dissectors()
    assert kind.recognises(SAID[0][1][:16])
    assert kind.recognises(SAID[1][1][:16])
    assert not kind.recognises(b"\x05hello")
    assert not kind.recognises(b"\xff\0\0\0\0\0\0\0\1\x7f\3")  # ZMTP


@pytest.mark.parametrize("seed", many(0, 20))
def test_damage_is_lines_and_nothing_else(seed: int) -> None:
    damaged(BackendDissector, SAID, seed)
