"""Bytes that are meant to hurt, from tests/data/fuzz/zmtp: greetings, handshakes and commands, at each mechanism and type."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.protocol import Side
from plugins.protocols.zmtp.connection import ZmtpConnection, connection_of
from plugins.protocols.zmtp.options import ZmtpOptions
from plugins.protocols.zmtp.z85 import encode_z85
from plugins.protocols.zmtp.zws import web_connection_of
from tests.notes import about, for_each
from tests.peers import optional
from tests.seeds import many, spread

CORPUS = sorted((Path(__file__).parents[3] / "data" / "fuzz" / "zmtp").iterdir())
_TYPES = ("PULL", "PUB", "XSUB", "REP", "REQ", "ROUTER", "DEALER", "PAIR", "RADIO", "DISH", "SERVER")
TYPES = [_TYPES[number] for number in spread(range(len(_TYPES)))]
_KEY = encode_z85(bytes(range(32)))

MECHANISMS: dict[str, tuple[Side, dict[str, Any]]] = {
    "NULL": ("server", {}),
    "PLAIN, decides": ("server", {"mechanism": "PLAIN"}),
    "PLAIN, shows": ("client", {"mechanism": "PLAIN", "username": "anna", "password": "tea"}),
}
if optional("nacl"):
    MECHANISMS |= {
        "CURVE, server": ("server", {"mechanism": "CURVE", "curve_secret_key": _KEY}),
        "CURVE, client": ("client", {"mechanism": "CURVE", "curve_server_key": _KEY}),
    }


def feed(end: ZmtpConnection, data: bytes, chunk: int) -> None:
    """Hand bytes over as a host does: the protocol's own error ends it, and nothing else is raised."""
    end.handle_timeout(0.0)
    try:
        for at in range(0, len(data), chunk):
            end.receive_data(data[at : at + chunk], 0.0)
            end.data_to_send()
            end.subscriptions.clear()
            if end.login() is not None:
                end.decide(None, 0.0)
        end.receive_eof(0.0)
    except RemoteProtocolError:
        assert end.closed()
    # A host writes the last words, and calls nothing else; but a deadline that is over must not raise.
    end.data_to_send()
    assert end.next_deadline() is None


@for_each("path", CORPUS, ids=lambda path: path.stem)
def test_what_is_meant_to_hurt(path: Path) -> None:
    data = path.read_bytes()
    for kind, (mechanism, (side, options)) in product(TYPES, MECHANISMS.items()):
        made = ZmtpOptions(type=kind, max_message=100_000, **options)  # type: ignore[arg-type]
        for chunk in {1, 7, len(data)} if len(data) < 1000 else {len(data) // 3, len(data)}:
            with about(kind, mechanism, f"{chunk} bytes at a time"):
                feed(connection_of(made, side), data, chunk)


@pytest.mark.parametrize("subprotocol", ["ZWS2.0", "ZWS2.0/NULL"])
def test_the_same_as_messages_of_websocket(subprotocol: str) -> None:
    for path, kind in product(CORPUS, TYPES):
        data = path.read_bytes()[:2000]
        # Cut where greeting and frames do not end, and each piece behind its size.
        pieces = [data[at : at + 5] for at in range(0, len(data), 5)]
        sized = b"".join(len(piece).to_bytes(8, "big") + piece for piece in pieces)
        made = ZmtpOptions(type=kind)  # type: ignore[arg-type]
        for octets in (sized, data):
            with about(path.stem, kind):
                feed(web_connection_of(made, "server", None, subprotocol), octets, len(octets))


@pytest.mark.parametrize("seed", many(17, 40))
def test_changed_octets(seed: int) -> None:
    """Each of the files with some octets changed, cut out or repeated."""
    chance = random.Random(seed)
    for path in CORPUS:
        data = bytearray(path.read_bytes()[:3000])
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(data))
            if (what := chance.random()) < 0.6:
                data[at] = chance.randrange(256)
            elif what < 0.8:
                del data[at : at + chance.randint(1, 8)]
            else:
                data[at:at] = data[at : at + chance.randint(1, 64)]
            if not data:
                break
        side, options = MECHANISMS[chance.choice(list(MECHANISMS))]
        made = ZmtpOptions(type=chance.choice(TYPES), max_message=100_000, **options)  # type: ignore[arg-type]
        feed(connection_of(made, side), bytes(data), max(1, len(data) // chance.randint(1, 5)))
