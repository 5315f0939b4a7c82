"""ZAP: questions and answers by 27/ZAP, and by pyzmq's handler."""

from __future__ import annotations

from typing import Any

import pytest

from kernel.contracts.errors import LoginRefused, RemoteProtocolError
from plugins.protocols.zmtp.zap import reply_of, request_of, user_of

KEY = bytes(range(32))


def login(mechanism: str, *, address: str = "", **more: Any) -> dict[str, Any]:
    facts = {"domain": "lab", "identity": b"me", "address": address}
    return {"mechanism": mechanism, "user": "", "secret": b"", "peer": "", "facts": facts, **more}


def test_questions() -> None:
    plain = login("PLAIN", user="anna", secret=b"secret", address="127.0.0.1")
    assert request_of(plain, b"7").frames() == [
        *[b"1.0", b"7", b"lab", b"127.0.0.1", b"me", b"PLAIN", b"anna", b"secret"]
    ]
    curve = login("CURVE", user="(Z85)", secret=KEY, address="::1")
    assert request_of(curve).frames() == [b"1.0", b"1", b"lab", b"::1", b"me", b"CURVE", KEY]
    assert request_of(login("NULL")).frames()[3:] == [b"", b"me", b"NULL"]


def test_answers() -> None:
    metadata = b"\5Color\0\0\0\4blue"
    reply = reply_of([b"1.0", b"7", b"200", b"OK", b"anna", metadata])
    assert (reply.request, user_of(reply), dict(reply.metadata)) == (b"7", "anna", {"Color": b"blue"})
    with pytest.raises(LoginRefused, match="400: no such user"):
        user_of(reply_of([b"1.0", b"7", b"400", b"no such user", b"", b""]))
    with pytest.raises(LoginRefused, match="300: a temporary error"):
        user_of(reply_of([b"1.0", b"7", b"300", b"", b"", b""]))


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b"1.0", b"7", b"200", b"OK", b"anna"],
        [b"2.0", b"7", b"200", b"OK", b"anna", b""],
        [b"1.0", b"7", b"OK", b"OK", b"anna", b""],
        [b"1.0", b"7", b"200", b"OK", b"anna", b"\5Col"],
    ],
)
def test_wrong_answers(frames: list[bytes]) -> None:
    with pytest.raises(RemoteProtocolError):
        reply_of(frames)


@pytest.mark.peer("pyzmq")
def test_a_handler_of_pyzmq() -> None:
    """Asked over libzmq's inproc, as libzmq does."""
    import zmq
    from zmq.auth.thread import ThreadAuthenticator

    context = zmq.Context()
    door = ThreadAuthenticator(context)
    door.start()
    asker = context.socket(zmq.REQ)
    asker.setsockopt(zmq.RCVTIMEO, 30_000)
    try:
        door.configure_plain(domain="lab", passwords={"anna": "secret"})
        asker.connect("inproc://zeromq.zap.01")
        answers = []
        for secret in (b"secret", b"guess"):
            asker.send_multipart(request_of(login("PLAIN", user="anna", secret=secret)).frames())
            answers.append(reply_of(asker.recv_multipart()))
        assert user_of(answers[0]) == "anna"
        with pytest.raises(LoginRefused, match="400"):
            user_of(answers[1])
    finally:
        asker.close(0)
        door.stop()
        context.term()
