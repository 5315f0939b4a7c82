"""ZMTP in captures: bytes by hand from 13/, 15/, 23/ and 37/ZMTP and 24/ZMTP-PLAIN."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernel.contracts.dissector import CLIENT, SERVER, Line
from plugins.dissectors.zmtp.dissector import ZmtpDissector
from plugins.dissectors.zmtp.plugin import register_dissectors
from tests.plugins.dissectors.streams import Said, damaged, heard, names
from tests.seeds import many

SIGNATURE = b"\xff\0\0\0\0\0\0\0\1\x7f"


def greeting(minor: int = 1, mechanism: bytes = b"NULL", as_server: int = 0) -> bytes:
    return SIGNATURE + bytes((3, minor)) + mechanism.ljust(20, b"\0") + bytes((as_server,)) + bytes(31)


def command(name: bytes, data: bytes = b"") -> bytes:
    body = bytes((len(name),)) + name + data
    return (b"\4" + bytes((len(body),)) if len(body) < 256 else b"\6" + len(body).to_bytes(8, "big")) + body


def ready(kind: bytes, **more: bytes) -> bytes:
    metadata = {"Socket-Type": kind, **more}
    pieces = [
        bytes((len(name),)) + name.encode() + len(value).to_bytes(4, "big") + value
        for name, value in metadata.items()
    ]
    return command(b"READY", b"".join(pieces))


def frame(body: bytes, more: int = 0) -> bytes:
    return (
        bytes((more, len(body))) + body
        if len(body) < 256
        else bytes((2 | more,)) + len(body).to_bytes(8, "big") + body
    )


VERSION_3: Said = [
    (CLIENT, SIGNATURE),
    (SERVER, SIGNATURE + b"\3"),
    (CLIENT, greeting()[10:]),
    (SERVER, greeting(0)[11:] + ready(b"PUB")),
    (CLIENT, ready(b"SUB", Identity=b"me") + command(b"SUBSCRIBE", b"tea")),
    (SERVER, frame(b"tea", 1) + frame(b"x" * 300) + frame(b"tea time")),
    (SERVER, command(b"PING", b"\0\x64ctx")),
    (CLIENT, command(b"PONG", b"ctx")),
]


def test_groups() -> None:
    joined = [
        (CLIENT, greeting() + ready(b"DISH") + command(b"JOIN", b"tea") + command(b"LEAVE", b"tea")),
        (SERVER, greeting() + ready(b"RADIO") + frame(b"tea", 1) + frame(b"\1 is no subscription")),
    ]
    lines = heard(ZmtpDissector(), joined)
    assert [(line.what, dict(line.facts)) for line in lines if line.what not in ("greeting", "READY")] == [
        ("JOIN", {"group": "tea"}),
        ("LEAVE", {"group": "tea"}),
        ("messages", {"count": 1, "frames": 2, "bytes": 3 + len(b"\1 is no subscription")}),
    ]


def test_version_3() -> None:
    dissector = ZmtpDissector()
    lines = heard(dissector, VERSION_3)
    assert [(line.what, dict(line.facts)) for line in lines] == [
        ("greeting", {"version": "3.1", "mechanism": "NULL", "as_server": False}),
        ("greeting", {"version": "3.0", "mechanism": "NULL", "as_server": False}),
        ("READY", {"Socket-Type": "PUB"}),
        ("READY", {"Socket-Type": "SUB", "Identity": "me"}),
        ("SUBSCRIBE", {"topic": "tea"}),
        ("messages", {"count": 2, "frames": 3, "bytes": 311}),
        ("PING", {"ttl_seconds": 10.0}),
        ("PONG", {"bytes": 3}),
    ]
    assert dissector.figures() == {
        "version": 3, "mechanism": "NULL", "client_type": "SUB", "server_type": "PUB",
        "messages_out": 0, "messages_in": 2, "bytes_out": 0, "bytes_in": 311, "commands": 5,
        "malformed": 0, "skipped_bytes": 0,
    }  # fmt: skip


def test_version_2() -> None:
    """15/ZMTP: revision 1, the socket's type (2: SUB, 1: PUB), an identity frame; subscriptions are messages."""
    said = [
        (CLIENT, SIGNATURE),
        (SERVER, SIGNATURE + b"\1\1" + frame(b"")),
        (CLIENT, b"\1\2" + frame(b"me") + frame(b"\1tea")),
        (SERVER, frame(b"tea time")),
        (CLIENT, frame(b"\0tea")),
    ]
    assert [(line.what, dict(line.facts)) for line in heard(ZmtpDissector(), said)] == [
        ("greeting", {"version": "2.0", "type": "PUB"}),
        ("identity", {"identity": ""}),
        ("greeting", {"version": "2.0", "type": "SUB"}),
        ("identity", {"identity": "me"}),
        ("subscribe", {"topic": "tea"}),
        ("messages", {"count": 1, "frames": 1, "bytes": 8}),
        ("cancel", {"topic": "tea"}),
    ]


def test_version_1_on_both_sides_and_on_one() -> None:
    """13/ZMTP: the length counts the flags; a newer peer's signature is the frame of an empty identity."""
    old = [
        (CLIENT, b"\1\0" + b"\4\1abc"),
        (SERVER, b"\3\0me" + b"\2\0d"),
        (CLIENT, b"\xff" + bytes(6) + b"\1\1\0" + bytes(256)),
    ]
    lines = heard(ZmtpDissector(), old)
    assert [(line.what, dict(line.facts)) for line in lines] == [
        ("identity", {"identity": ""}),
        ("messages", {"count": 0, "frames": 1, "bytes": 3}),
        ("identity", {"identity": "me"}),
        ("messages", {"count": 1, "frames": 1, "bytes": 1}),
        ("messages", {"count": 1, "frames": 1, "bytes": 256}),
    ]
    mixed = [(SERVER, b"\1\0"), (CLIENT, SIGNATURE), (CLIENT, b"\2\0x")]
    assert names(heard(ZmtpDissector(), mixed)) == ["identity", "greeting", "messages"]


def test_passwords_and_encrypted_messages_are_not_shown() -> None:
    hello = command(b"HELLO", b"\5admin\6secret")
    lines = heard(
        ZmtpDissector(), [(SERVER, greeting(0, b"PLAIN", 1)), (CLIENT, greeting(0, b"PLAIN") + hello)]
    )
    assert lines[-1] == Line("HELLO", {"username": "admin", "password": "(not shown)"})
    curve = [
        (SERVER, greeting(0, b"CURVE", 1)),
        (CLIENT, greeting(0, b"CURVE") + command(b"MESSAGE", bytes(40))),
    ]
    assert heard(ZmtpDissector(), curve)[-1].facts["count"] == 1


def test_a_conversation_with_curve() -> None:
    """That of libzmq's PUSH in ``tests/plugins/protocols/zmtp/test_curve.py``."""
    recorded = Path(__file__).parent.parent / "protocols" / "zmtp" / "recorded_curve.json"
    sides = {name: bytes.fromhex("".join(lines)) for name, lines in json.loads(recorded.read_text()).items()}
    push, pull = sides["libzmq_push"], sides["to_libzmq_push"]
    # 64 octets of greeting; HELLO has 202 with its header, INITIATE 286.
    said: Said = [(CLIENT, push[:64]), (SERVER, pull[:64]), (CLIENT, push[64:266]), (SERVER, pull[64:234])]
    said += [(CLIENT, push[266:552]), (SERVER, pull[234:]), (CLIENT, push[552:])]
    lines = heard(ZmtpDissector(), said)
    assert [line.what for line in lines] == [
        *["greeting"] * 2,
        *["HELLO", "WELCOME", "INITIATE", "READY", "messages"],
    ]
    assert (lines[2].facts, lines[-1].facts["count"]) == ({"bytes": 194}, 5)


MALFORMED: dict[str, tuple[bytes, str]] = {
    "flags": (b"\x10\0", "a frame with flags 0x10"),
    "a nameless command": (b"\4\0", "a command without a name"),
    "metadata": (command(b"READY", b"\x0bSocket-Type\0\0\1\0x"), "metadata that do not fill their command"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_wrong_is_named(name: str) -> None:
    data, why = MALFORMED[name]
    dissector = ZmtpDissector()
    heard(dissector, [(SERVER, greeting()), (CLIENT, greeting())])
    assert dissector.receive(CLIENT, data, 0.0) == [Line("malformed", {"why": why})]


@pytest.mark.parametrize("empty", [b"\0", b"\xff" + bytes(8)], ids=["short", "long"])
def test_a_frame_of_version_1_has_flags_at_least(empty: bytes) -> None:
    dissector = ZmtpDissector()
    heard(dissector, [(SERVER, b"\1\0"), (CLIENT, b"\1\0")])
    (line,) = dissector.receive(CLIENT, empty, 0.0)
    assert line == Line("malformed", {"why": "a frame of ZMTP 1.0 with a length of 0"})
    assert dissector.figures()["bytes_out"] == 0


def test_what_was_not_captured_is_told_and_reading_goes_on() -> None:
    dissector = ZmtpDissector()
    heard(dissector, VERSION_3)
    assert dissector.lose(SERVER, 99, 1.0) == [Line("bytes missing", {"bytes": 99, "in_step": False})]
    assert dissector.receive(SERVER, b"rest of something", 1.1) == []
    assert names(dissector.receive(SERVER, frame(b"whole") + frame(b"again"), 1.2)) == [
        "in step again",
        "messages",
    ]
    begun_later = ZmtpDissector()
    assert begun_later.lose(CLIENT, None, 0.0) == []
    assert names(begun_later.receive(CLIENT, frame(b"whole"), 0.1)) == ["in step again", "messages"]


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_any_chunks_give_the_same_figures(size: int) -> None:
    cut = [(sender, data[at : at + size]) for sender, data in VERSION_3 for at in range(0, len(data), size)]
    whole, pieces = ZmtpDissector(), ZmtpDissector()
    heard(whole, VERSION_3)
    heard(pieces, cut)
    assert pieces.figures() == whole.figures()


def test_it_is_recognised_by_its_signature() -> None:
    (kind,) = register_dissectors()
    assert kind.recognises(SIGNATURE)
    assert not kind.recognises(b"\xff\x81\0\0\0\0\0\0\x30\x7f")
    assert not kind.recognises(b"\xff")


@pytest.mark.parametrize("seed", many(0, 20))
def test_damage_is_lines_and_nothing_else(seed: int) -> None:
    figures: list[dict[str, Any]] = damaged(ZmtpDissector, VERSION_3, seed)
    assert figures
