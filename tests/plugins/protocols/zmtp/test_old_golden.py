"""Bytes of libzmq 4 (4.3.5, in pyzmq 27) in ZMTP 1.0 and 2.0, to peers that greet in these versions: ours are the same.

Who connects says nothing else in these versions.  ``test_libzmq_still_says_so`` records them again.  What old programs say that
know no later version is of libzmq 2.1.11 and JeroMQ 0.3.6: ``tests/interop/test_old_zmq.py`` has them live.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from kernel.contracts.message import batch_of
from plugins.protocols.zmtp.addressing import Naming
from plugins.protocols.zmtp.connection import ZmtpConnection, connection_of
from plugins.protocols.zmtp.options import ZmtpOptions
from plugins.protocols.zmtp.socket_types import NUMBERED
from tests.plugins.protocols.zmtp.conversation import SIGNATURE, plain, written

TIMEOUT = 30.0


class Case(msgspec.Struct, frozen=True):
    """What one socket says to an old peer."""

    type: str
    peer: str
    messages: tuple[tuple[bytes, ...], ...] = ()
    identity: str = ""
    subscribe: tuple[str, ...] = ()
    hears: bytes = b""
    """What the peer of 2.0 says behind its greeting.  One of 1.0 says nothing."""


PARTS = Case("PUSH", "PULL", ((b"hello",), (b"a", b""), (b"",)))
SIZES = Case("PUSH", "PULL", tuple((b"x" * size,) for size in (253, 254, 255, 256)))
NAMED = Case("DEALER", "ROUTER", ((b"", b"q"),), identity="anna")
ASKS = Case("REQ", "REP", ((b"q",),), identity="anna")
SILENT = Case("ROUTER", "DEALER", identity="r")
ANSWERS = Case("REP", "REQ")
FIRST = Case("PAIR", "PAIR", ((b"p",),))
FEED = Case("PUB", "SUB", ((b"tea", b"1"),), hears=b"\0\4\1tea")
WANTS = Case("SUB", "PUB", subscribe=("tea",))

OF_1_0: dict[Case, bytes] = {
    PARTS: SIGNATURE + b"\x06\0hello" + b"\x02\1a\x01\0" + b"\x01\0",
    SIZES: SIGNATURE
    + (b"\xfe\0" + b"x" * 253)
    + b"".join(
        b"\xff\0\0\0\0\0\0" + (size + 1).to_bytes(2, "big") + b"\0" + b"x" * size for size in (254, 255, 256)
    ),
    NAMED: bytes.fromhex("ff 00 00 00 00 00 00 00 05 7f") + b"anna" + b"\x01\1\x02\0q",
    ASKS: bytes.fromhex("ff 00 00 00 00 00 00 00 05 7f") + b"anna" + b"\x01\1\x02\0q",
    SILENT: bytes.fromhex("ff 00 00 00 00 00 00 00 02 7f") + b"r",
    ANSWERS: SIGNATURE,
    FIRST: SIGNATURE + b"\x02\0p",
    FEED: SIGNATURE + b"\x04\1tea\x02\0" + b"1",
    # What it wants, which a PUB of 1.0 has no use for.  We leave it out.
    WANTS: SIGNATURE + b"\x05\0\1tea",
}
OF_2_0: dict[Case, bytes] = {
    PARTS: SIGNATURE + b"\x03\x08\0\0" + b"\0\5hello" + b"\1\1a\0\0" + b"\0\0",
    SIZES: SIGNATURE
    + b"\x03\x08\0\0"
    + b"".join(b"\0" + bytes((size,)) + b"x" * size for size in (253, 254, 255))
    + (b"\2\0\0\0\0\0\0\1\0" + b"x" * 256),
    NAMED: bytes.fromhex("ff 00 00 00 00 00 00 00 05 7f 03 05 00 04") + b"anna" + b"\1\0\0\1q",
    ASKS: bytes.fromhex("ff 00 00 00 00 00 00 00 05 7f 03 03 00 04") + b"anna" + b"\1\0\0\1q",
    SILENT: bytes.fromhex("ff 00 00 00 00 00 00 00 02 7f 03 06 00 01") + b"r",
    ANSWERS: SIGNATURE + b"\x03\x04\0\0",
    FIRST: SIGNATURE + b"\x03\x00\0\0" + b"\0\1p",
    FEED: SIGNATURE + b"\x03\x01\0\0" + b"\1\3tea\0\1" + b"1",
    WANTS: SIGNATURE + b"\x03\x02\0\0" + b"\0\4\1tea",
}
RECORDED = {"1.0": OF_1_0, "2.0": OF_2_0}
OF_OLD_PROGRAMS: dict[str, dict[Case, bytes]] = {
    # All reserved flags are set: ``zmq_msg_init_size`` of 2.1 sets what is not in its mask.
    "libzmq 2.1": {
        PARTS: b"\x01\x7e" + b"\x06\x7ehello" + b"\x02\x7fa\x01\x7e" + b"\x01\x7e",
        SIZES: b"\x01\x7e"
        + (b"\xfe\x7e" + b"x" * 253)
        + b"".join(
            b"\xff\0\0\0\0\0\0" + (size + 1).to_bytes(2, "big") + b"\x7e" + b"x" * size
            for size in (254, 255, 256)
        ),
        NAMED: b"\x05\x7eanna" + b"\x01\x7f\x02\x7eq",
        ASKS: b"\x05\x7eanna" + b"\x01\x7f\x02\x7eq",
        SILENT: b"\x02\x7er",
        ANSWERS: b"\x01\x7e",
        FIRST: b"\x01\x7e" + b"\x02\x7ep",
        FEED: b"\x01\x7e" + b"\x04\x7ftea\x02\x7e" + b"1",
        WANTS: b"\x01\x7e",
    },
    # As libzmq 4, but for the revision.
    "JeroMQ 0.3": {
        PARTS: SIGNATURE + b"\x01\x08\0\0" + b"\0\5hello" + b"\1\1a\0\0" + b"\0\0",
        NAMED: bytes.fromhex("ff 00 00 00 00 00 00 00 05 7f 01 05 00 04") + b"anna" + b"\1\0\0\1q",
        ASKS: bytes.fromhex("ff 00 00 00 00 00 00 00 05 7f 01 03 00 04") + b"anna" + b"\1\0\0\1q",
        SILENT: bytes.fromhex("ff 00 00 00 00 00 00 00 02 7f 01 06 00 01") + b"r",
        ANSWERS: SIGNATURE + b"\x01\x04\0\0",
        FIRST: SIGNATURE + b"\x01\x00\0\0" + b"\0\1p",
        FEED: SIGNATURE + b"\x01\x01\0\0" + b"\1\3tea\0\1" + b"1",
        WANTS: SIGNATURE + b"\x01\x02\0\0" + b"\0\4\1tea",
    },
}

CASES = [
    pytest.param(version, case, octets, id=f"{version}-{case.type}-{number}")
    for version, cases in RECORDED.items()
    for number, (case, octets) in enumerate(cases.items())
]


def greeting_of(version: str, case: Case) -> bytes:
    """What a peer says first: an empty identity in 1.0, and signature, revision, type and identity in 2.0."""
    if version == "1.0":
        return b"\1\0"
    return SIGNATURE + bytes((1, NUMBERED.index(case.peer))) + b"\0\0" + case.hears


@pytest.mark.peer("pyzmq")
@pytest.mark.parametrize("role", ["binds", "connects"])
@pytest.mark.parametrize("version, case, octets", CASES)
def test_libzmq_still_says_so(version: str, case: Case, octets: bytes, role: str) -> None:
    import zmq

    with (
        zmq.Context() as context,
        context.socket(getattr(zmq, case.type)) as theirs,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        theirs.linger, theirs.sndtimeo = 0, int(TIMEOUT * 1000)
        if case.identity:
            theirs.routing_id = case.identity.encode()
        for topic in case.subscribe:
            theirs.subscribe(topic)
        if role == "binds":
            port = theirs.bind_to_random_port("tcp://127.0.0.1")
            peer = socket.create_connection(("127.0.0.1", port))
        else:
            theirs.connect(f"tcp://127.0.0.1:{listener.getsockname()[1]}")
            peer, _ = listener.accept()
        with peer:
            peer.settimeout(0.05)
            peer.sendall(greeting_of(version, case))
            got = b""
            for turn in range(int(TIMEOUT / 0.05)):
                # It notices a new connection to a socket that is bound only in a call.
                theirs.poll(0)
                # What a PUB is given before it has heard of the subscription it drops, and nothing tells that it has.
                if not turn or (case.type == "PUB" and b"tea" not in got):
                    for message in case.messages:
                        theirs.send_multipart(message)
                with suppress(TimeoutError):
                    got += peer.recv(65_536)
                if len(got) >= len(octets):
                    break
            # What a PUB was given again may have come twice.
            assert got == octets or (case.type == "PUB" and got.startswith(octets))


@pytest.mark.parametrize("version, case, octets", CASES)
def test_we_say_the_same(version: str, case: Case, octets: bytes) -> None:
    end = _end_of(case)
    end.receive_data(greeting_of(version, case), 0.0)
    for message in case.messages:
        _send(end, message)
    wanted = octets
    if case is WANTS and version == "1.0":
        wanted = SIGNATURE
    assert written(end) == wanted


def as_if_old(version: str, octets: bytes) -> bytes:
    """Return what a libzmq 4 says with another octet in the place of that by which it offers version 3."""
    at, octet = {"1.0": (9, b"\0"), "2.0": (10, b"\1")}[version]
    return octets[:at] + octet + octets[at + 1 :]


SAID = [
    *(
        pytest.param(case, as_if_old(version, octets), id=f"libzmq 4 in {version}-{case.type}-{number}")
        for version, cases in RECORDED.items()
        for number, (case, octets) in enumerate(cases.items())
    ),
    *(
        pytest.param(case, octets, id=f"{program}-{case.type}-{number}")
        for program, cases in OF_OLD_PROGRAMS.items()
        for number, (case, octets) in enumerate(cases.items())
    ),
]


@pytest.mark.parametrize("case, octets", SAID)
def test_we_understand_it_in_pieces_of_any_size(case: Case, octets: bytes) -> None:
    ours = Case(case.peer, case.type, subscribe=("tea",) if case is FEED else ())
    for size in (1, 3, 1000):
        end = _end_of(ours)
        got: list[Any] = []
        for start in range(0, len(octets), size):
            got += plain(end.receive_data(octets[start : start + size], 0.0))
        assert end.ready_to_send()
        wanted: list[Any] = [(m if len(m) > 1 else m[0], "") for m in case.messages]
        if case is FEED:
            wanted = [(b"1", "tea")]
        if case is ASKS:
            # A REP takes the empty part off.
            wanted = [(b"q", "")]
        assert got == wanted
        if ours.type == "ROUTER":
            assert end.peer_name == "anna"


def _end_of(case: Case) -> ZmtpConnection:
    options = ZmtpOptions(type=case.type, identity=case.identity, subscribe=case.subscribe)  # type: ignore[arg-type]
    end = connection_of(options, "client", lambda told: Naming(told.decode(), f"net/{told.decode()}"))
    end.handle_timeout(0.0)
    return end


def _send(end: ZmtpConnection, message: tuple[bytes, ...]) -> None:
    alone = len(message) == 1
    end.send_batches([batch_of([message[0] if alone else message], multipart=not alone)], 0.0)
