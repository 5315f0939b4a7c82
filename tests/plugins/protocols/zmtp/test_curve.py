"""CURVE: bytes recorded from libzmq, chunks, limits, and bytes that are meant to hurt.

``recorded_curve.json`` has two conversations with libzmq 4.3.5 (pyzmq 27), which accepted what the kernel said in
them: a PUSH of libzmq at a PULL of the kernel, and a SUB of the kernel at an XPUB of libzmq with heartbeats.  The
keys of the kernel's side come from ``chance`` below, so the same bytes are said again.  libzmq chose its own at
random.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel.contracts.errors import ProtocolError, RemoteProtocolError
from kernel.contracts.message import Batch, Buffer, Envelope, batch_of
from kernel.contracts.protocol import Side
from kernel.testing.protocol_checks import PROTOCOL_CHECKS, ProtocolSubject
from plugins.protocols.zmtp.connection import ZmtpConnection
from plugins.protocols.zmtp.options import ZmtpOptions
from plugins.protocols.zmtp.z85 import decode_z85, encode_z85
from tests.notes import for_each
from tests.plugins.protocols.zmtp.conversation import carry, plain, written
from tests.seeds import examples, many
from tests.slow_checks import BYTE_BY_BYTE, parameters

pytest.importorskip("nacl")

from nacl import bindings

from plugins.protocols.zmtp import curve
from plugins.protocols.zmtp.curve import pair_of

RECORDED = {
    name: bytes.fromhex("".join(lines))
    for name, lines in json.loads((Path(__file__).parent / "recorded_curve.json").read_text()).items()
}
SERVER, CLIENT = (pair_of(hashlib.sha256(name).digest()) for name in (b"server", b"client"))
GREETING = 64


def chance() -> Callable[[int], bytes]:
    drawn = 0

    def draw(count: int) -> bytes:
        nonlocal drawn
        drawn += 1
        return hashlib.sha256(b"%d" % drawn).digest()[:count]

    return draw


class Open(ZmtpConnection):
    """Lets everybody in, as an engine may."""

    def receive_data(self, data: Buffer, now: float) -> list[Batch]:
        batches = super().receive_data(data, now)
        if self.login() is not None:
            self.decide(None, now)
        return batches


def server(kind: str = "PULL", make: type[ZmtpConnection] = Open, **options: Any) -> ZmtpConnection:
    return _end(make, kind, "server", curve_secret_key=SERVER.secret, **options)


def client(kind: str = "PUSH", **options: Any) -> ZmtpConnection:
    keys = {"curve_secret_key": CLIENT.secret, "curve_server_key": SERVER.public}
    return _end(ZmtpConnection, kind, "client", **(keys | options))


def _end(make: type[ZmtpConnection], kind: Any, side: Side, **options: Any) -> ZmtpConnection:
    end = make(ZmtpOptions(type=kind, mechanism="CURVE", **options), side, chance=chance())
    end.handle_timeout(0.0)
    return end


def opened(**options: Any) -> tuple[ZmtpConnection, ZmtpConnection]:
    ends = client(**options), server(**options)
    carry(*ends, 0.0)
    assert all(end.ready_to_send() for end in ends)
    return ends


def sealed(end: ZmtpConnection, message: Any) -> bytes:
    end.send_batches([batch_of([message], multipart=isinstance(message, tuple))], 0)
    return written(end)


def fed(end: ZmtpConnection, data: bytes, step: int) -> tuple[list[Any], bytes]:
    """Return messages and answers."""
    got, said = [], written(end)
    for at in range(0, len(data), step):
        got += plain(end.receive_data(data[at : at + step], 0))
        said += written(end)
    return got, said


# ---------------------------------------------------------------------- libzmq's bytes


@pytest.mark.parametrize("step", [1, 4])
def test_what_a_client_of_libzmq_has_said(step: int) -> None:
    got, said = fed(server(), RECORDED["libzmq_push"], step)
    assert got == [(b"hello", ""), ((b"a", b"", b"b"), ""), (b"x" * 300, "")]
    assert said == RECORDED["to_libzmq_push"]


@pytest.mark.parametrize("step", [1, 7, 1000, 100_000])
def test_what_a_server_of_libzmq_has_said(step: int) -> None:
    end = client("SUB", subscribe=("tea",))
    got, said = fed(end, RECORDED["libzmq_xpub"], step)
    assert got == [(b"green", "tea")]
    # Subscriptions and answers to PING are said in this order, however the bytes have come.
    assert said == RECORDED["to_libzmq_xpub"]


def test_z85() -> None:
    """The example of 32/Z85, and the key in libzmq's manual (zmq_curve)."""
    assert encode_z85(bytes.fromhex("864FD26FB559F75B")) == "HelloWorld"
    assert decode_z85("HelloWorld") == bytes.fromhex("864FD26FB559F75B")
    key = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
    assert encode_z85(decode_z85(key)) == key
    assert decode_z85(key)[:8].hex() == "54fcba24e9324996"
    for text in ("1234", "#####", "abc~e"):
        with pytest.raises(ValueError, match="Z85|four octets"):
            decode_z85(text)


# ---------------------------------------------------------------------- as every protocol


@pytest.mark.parametrize("check", parameters(PROTOCOL_CHECKS, BYTE_BY_BYTE))
@pytest.mark.parametrize("keyed", [False, True])
def test_it_passes_the_checks_that_every_protocol_has_to(check: Any, keyed: bool) -> None:
    options: dict[str, Any] = {"key_part": keyed, "handshake": 5.0}
    check(ProtocolSubject(make=lambda: (client(**options), server(**options)), keys=keyed))


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=5),
            st.sampled_from([b"x" * 222, b"y" * 223, b"z" * 70_000]),
            st.lists(st.binary(max_size=2), min_size=2, max_size=9).map(tuple),
        ),
        max_size=12,
    ),
    st.lists(st.integers(0, 4000), max_size=8),
)
def test_any_messages_in_any_chunks(messages: list[Any], cuts: list[int]) -> None:
    push, pull = opened()
    data = b"".join(sealed(push, message) for message in messages)
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    received = []
    for start, end in pairwise(edges):
        received += pull.receive_data(data[start:end], 0)
    assert plain(received) == [(message, "") for message in messages]


def test_bodies_of_every_kind_of_buffer_and_keys_in_front_of_each() -> None:
    push, pull = opened(key_part=True)
    bodies = [b"bytes", bytearray(b"array"), memoryview(b"view")]
    push.send_batches([batch_of(bodies, Envelope(key="k"))], 0)
    octets = written(push)
    assert plain(pull.receive_data(octets, 0)) == [(b"bytes", "k"), (b"array", "k"), (b"view", "k")]
    assert b"bytes" not in octets


def test_heartbeats_are_sealed() -> None:
    push, pull = opened(heartbeat=1.0)
    push.handle_timeout(1.0)
    ping = written(push)
    assert ping.startswith(b"\0")
    assert b"PING" not in ping
    pull.receive_data(ping, 1.0)
    pong = written(pull)
    assert pong.startswith(b"\0")
    push.receive_data(pong, 1.5)
    assert push.next_deadline() == 2.5


def test_the_handshake_shows_neither_keys_nor_types() -> None:
    push, pull = client(), server()
    said = b""
    for _ in range(8):
        there, back = written(push), written(pull)
        said += there + back
        pull.receive_data(there, 0)
        push.receive_data(back, 0)
    assert push.ready_to_send()
    assert b"Socket-Type" not in said
    for pair in (SERVER, CLIENT):
        assert decode_z85(pair.public) not in said


def test_the_login_is_the_public_key() -> None:
    push, pull = client(), server(make=ZmtpConnection)
    carry(push, pull, 0)
    login = pull.login()
    assert login is not None
    assert (login.mechanism, login.user, login.secret) == ("CURVE", CLIENT.public, decode_z85(CLIENT.public))
    assert pull.login() is None
    assert not pull.ready_to_send()
    pull.decide("400", 0)
    with pytest.raises(RemoteProtocolError, match="400, authentication failure"):
        push.receive_data(written(pull), 0)


def test_a_client_without_a_key_is_somebody_new() -> None:
    push, pull = client(curve_secret_key=""), server(make=ZmtpConnection)
    carry(push, pull, 0)
    login = pull.login()
    assert login is not None
    assert login.user != CLIENT.public


# ---------------------------------------------------------------------- limits, and wrong bytes


def halted(until: str) -> tuple[ZmtpConnection, ZmtpConnection, bytes]:
    """Return both ends, and the bytes of the command with this name, which are not delivered."""
    push, pull = client(), server()
    for _ in range(8):
        for end, other in ((push, pull), (pull, push)):
            said = written(end)
            if until.encode() in said:
                return push, pull, said
            other.receive_data(said, 0)
    raise AssertionError(until)


COMMANDS = {"HELLO": 1, "WELCOME": 0, "INITIATE": 1, "READY": 0}
"""Commands of the handshake, and who gets them: client or server."""


@pytest.mark.parametrize("name", COMMANDS)
def test_every_flipped_bit_and_every_other_length(name: str) -> None:
    _, _, good = halted(name)
    head = good.index(name.encode()) - 1
    body = good[head:]
    wrong = [body[:at] + bytes((body[at] ^ 1,)) + body[at + 1 :] for at in range(len(body))]
    wrong += [body[:-1], body + b"\0", body[: len(body) // 2], body[: 1 + len(name)]]
    for octets in wrong:
        *ends, _ = halted(name)
        end = ends[COMMANDS[name]]
        frame = good[: head - 9] if good[head - 9 : head - 8] == b"\6" else good[: head - 2]
        with pytest.raises(RemoteProtocolError):
            end.receive_data(frame + _command(octets), 0)
        assert end.closed()
        assert not end.ready_to_send()


def _command(body: bytes) -> bytes:
    return (bytes((4, len(body))) if len(body) < 256 else b"\6" + len(body).to_bytes(8, "big")) + body


def test_a_cookie_of_another_conversation() -> None:
    """Who has recorded a conversation cannot begin another one with it, not even with the same HELLO."""
    _, _, initiate = halted("INITIATE")
    other = ZmtpConnection(
        ZmtpOptions(type="PULL", mechanism="CURVE", curve_secret_key=SERVER.secret), "server"
    )
    other.handle_timeout(0.0)
    _, _, hello = halted("HELLO")
    other.receive_data(RECORDED["libzmq_push"][:GREETING] + hello, 0)
    with pytest.raises(RemoteProtocolError, match="the cookie of INITIATE is none of this conversation"):
        other.receive_data(initiate, 0)


def test_points_of_a_low_order() -> None:
    """Whatever is boxed with them could be read by everybody."""
    _, pull, hello = halted("HELLO")
    at = hello.index(b"\5HELLO") + 6 + 2 + 72
    with pytest.raises(RemoteProtocolError, match="no public key"):
        pull.receive_data(hello[:at] + bytes(32) + hello[at + 32 :], 0)


def test_a_vouch_of_somebody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that shows the public key of another one, whose secret key it does not have."""
    evil = pair_of(b"e" * 32)
    keys = {decode_z85(evil.secret): decode_z85(CLIENT.public)}
    genuine = curve.public_key
    monkeypatch.setattr(curve, "public_key", lambda secret: keys.get(secret) or genuine(secret))
    with pytest.raises(RemoteProtocolError, match="the vouch of INITIATE does not open"):
        carry(client(curve_secret_key=evil.secret), server(), 0)


def test_messages_that_are_wrong() -> None:
    first, second = (sealed(opened()[0], b"%d" % number) for number in range(2))
    assert first[:2] == second[:2]
    for octets, complaint in (
        (first + first, "was sent twice"),
        (first[:20] + bytes((first[20] ^ 1,)) + first[21:], "does not open"),
        (first[:-1] + bytes((first[-1] ^ 1,)), "does not open"),
        (b"\0\x05hello", "no MESSAGE"),
        (b"\0" + bytes((first[1] - 2,)) + first[2:-2], "no MESSAGE"),
        (b"\1" + first[1:], "flags 0x01"),
        (b"\4\x06\x05READY", "no MESSAGE"),
        (b"\2" + (1034).to_bytes(8, "big"), "max_message is 1000"),
        (b"\2" + b"\xff" * 8, "max_message is 1000"),
    ):
        end = opened(max_message=1000)[1]
        end._decoder.max_command = 100
        with pytest.raises(RemoteProtocolError, match=complaint):
            end.receive_data(octets, 0)
        assert end.closed()


def test_what_came_before_a_wrong_message_counts() -> None:
    push, pull = opened()
    octets = sealed(push, b"1")
    with pytest.raises(RemoteProtocolError) as caught:
        pull.receive_data(octets + octets, 0)
    assert plain(list(caught.value.batches)) == [(b"1", "")]


@pytest.mark.parametrize("size", [0, 1, 222, 223, 1000])
@pytest.mark.parametrize("parts", [1, 3])
def test_a_read_of_frames_that_look_alike(size: int, parts: int) -> None:
    """They are opened together, up to the first one that is wrong."""
    messages = [tuple(bytes((number, part)) * size for part in range(parts)) for number in range(20)]
    whole: list[Any] = [message if parts > 1 else message[0] for message in messages]
    push, pull = opened()
    push.send_batches([batch_of(whole, multipart=parts > 1)], 0)
    data = written(push)
    stride = len(data) // (20 * parts)
    for frame in (1, 2, 17, 20 * parts - 1):
        at = frame * stride
        changed = data[: at + stride - 1] + bytes((data[at + stride - 1] ^ 1,)) + data[at + stride :]
        again = data[:at] + data[at - stride : at] + data[at + stride :]
        for octets, complaint in ((changed, "does not open"), (again, "was sent twice")):
            end = opened()[1]
            with pytest.raises(RemoteProtocolError, match=complaint) as caught:
                end.receive_data(octets, 0)
            assert plain(list(caught.value.batches)) == [(each, "") for each in whole[: frame // parts]]
    assert plain(pull.receive_data(data, 0)) == [(each, "") for each in whole]


def test_a_command_and_parts_among_messages_that_look_alike() -> None:
    push, pull = opened()
    body = b"\4PING\0\0what"
    octets = [box(push, flags, body) for flags in (0, 0, 2, 0, 1, 0, 0)]
    assert len({len(frame) for frame in octets}) == 1
    assert plain(pull.receive_data(b"".join(octets), 0)) == [
        *[(body, "")] * 3,
        ((body, body), ""),
        (body, ""),
    ]
    assert written(pull).count(b"MESSAGE") == 1
    bad = b"".join([*[box(push, 0, body) for _ in range(5)], box(push, 4, body), box(push, 0, body)])
    with pytest.raises(RemoteProtocolError, match="flags 0x04") as caught:
        pull.receive_data(bad, 0)
    assert plain(list(caught.value.batches)) == [(body, "")] * 5


def box(end: ZmtpConnection, flags: int, body: bytes) -> bytes:
    """Seal what the kernel would not say."""
    framing: Any = end._framing
    framing._nonces.last += 1
    short = framing._nonces.last.to_bytes(8, "big")
    text = bindings.crypto_box_easy_afternm(bytes((flags,)) + body, framing._prefix + short, framing._key)
    octets = b"\x07MESSAGE" + short + text
    return bytes(framing.header(len(octets)) + octets)


@for_each(
    "flags, body, complaint",
    [
        (4, b"", "flags 0x04"),
        (3, b"", "flags 0x03"),
        (2, b"", "without a name"),
        (2, b"\4PING\0", "a PING with 1 bytes"),
        (2, b"\5READY", "a second READY"),
        (2, b"\4PING" + bytes(9000), "a command of 9005 bytes"),
        (0, bytes(10_001), "max_message is 10000"),
    ],
)
def test_wrong_things_in_right_boxes(flags: int, body: bytes, complaint: str) -> None:
    push, pull = opened(max_message=10_000)
    with pytest.raises(RemoteProtocolError, match=complaint):
        pull.receive_data(box(push, flags, body), 0)


def test_parts_together_have_the_limits_of_a_message() -> None:
    push, pull = opened(max_message=10_000, max_parts=3)
    part = box(push, 1, bytes(6000))
    with pytest.raises(RemoteProtocolError, match="max_message is 10000"):
        pull.receive_data(part + box(push, 0, bytes(6000)), 0)
    push, pull = opened(max_parts=3)
    with pytest.raises(RemoteProtocolError, match="more than 3 parts"):
        pull.receive_data(b"".join(box(push, 1, b"") for _ in range(3)), 0)


def test_metadata_have_the_limits_of_a_command() -> None:
    end = server()
    end.receive_data(RECORDED["libzmq_push"][:GREETING], 0)
    with pytest.raises(RemoteProtocolError, match="a command of 8193 bytes"):
        end.receive_data(b"\6" + (8193).to_bytes(8, "big"), 0)


def test_peers_of_older_versions_are_refused() -> None:
    for octets in (b"\x01\0", RECORDED["libzmq_push"][:10] + b"\x01\x08\0\0"):
        with pytest.raises(RemoteProtocolError, match="no mechanism CURVE"):
            server().receive_data(octets, 0)


def test_two_clients_and_two_servers() -> None:
    with pytest.raises(RemoteProtocolError, match="WELCOME was to come"):
        carry(client(), client("PULL"), 0)
    one, other = server("PUSH"), server()
    carry(one, other, 0)
    # Both wait for HELLO; the time of the handshake ends it.
    with pytest.raises(RemoteProtocolError, match="no READY within"):
        one.handle_timeout(10.0)


@pytest.mark.parametrize("seed", many(0, 20))
@pytest.mark.parametrize("name", ["libzmq_push", "libzmq_xpub"])
def test_any_bytes(name: str, seed: int) -> None:
    """Whatever comes, it is the protocol's own error or nothing."""
    luck = random.Random(seed)
    for _ in range(10):
        data = bytearray(RECORDED[name])
        for _ in range(luck.randrange(1, 4)):
            at = luck.randrange(len(data))
            if luck.random() < 0.3:
                del data[at : at + luck.randrange(1, 40)]
            else:
                data[at] = luck.randrange(256)
        end = server() if name == "libzmq_push" else client("SUB", subscribe=("tea",))
        step = 1 + seed % 50
        try:
            for at in range(0, len(data), step):
                end.receive_data(bytes(data[at : at + step]), 0)
            end.receive_eof(0)
        except ProtocolError:
            assert end.closed()
        end.data_to_send()
