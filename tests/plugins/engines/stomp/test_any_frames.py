"""Any frames in any order: the broker goes on, and a client that has left leaves nothing behind."""

from __future__ import annotations

import contextlib
from random import Random

import pytest

from tests.plugins.engines.stomp.conftest import StompBroker
from tests.plugins.engines.stomp.raw_client import frame
from tests.seeds import many

COMMANDS = [
    *["SEND"] * 5,
    *["SUBSCRIBE"] * 4,
    "UNSUBSCRIBE",
    *["ACK"] * 4,
    "NACK",
    *["BEGIN"] * 2,
    "COMMIT",
    "ABORT",
    "CONNECT",
    "DISCONNECT",
    "NOTHING",
]
HEADERS: dict[str, list[str]] = {
    "destination": [
        "/queue/a",
        "/queue/b",
        "b",
        "/topic/#",
        "/topic/x",
        "/exchange/amq.fanout",
        "/amq/queue/a",
        "/exchange/amq.direct/k",
        "/exchange/amq.headers",
        "/temp-queue/t",
        "/reply-queue/a",
        "/queue/",
        "/no",
        "",
    ],
    "id": [
        "1",
        "2",
        "T_1@@SESSION@@1",
        "T_1@@SESSION@@2",
        "T_2@@SESSION@@1",
        "T_1@@SESSION@@0",
        "/temp-queue/t",
    ],
    "message-id": ["T_1@@SESSION@@1", "T_2@@SESSION@@2", "x"],
    "subscription": ["1", "2"],
    "ack": ["auto", "client", "client-individual", "never"],
    "transaction": ["t", "u"],
    "receipt": ["1", "a\\cb", ""],
    "reply-to": ["/temp-queue/t", "/temp-queue/u", "/queue/a", "x", "/temp-queue/"],
    "persistent": ["true", "false", "x"],
    "durable": ["true", "false"],
    "auto-delete": ["true", "false"],
    "exclusive": ["true", "false"],
    "requeue": ["true", "false"],
    "prefetch-count": ["1", "0", "-1", "x"],
    "priority": ["1", "300"],
    "expiration": ["0", "1", "x"],
    "x-message-ttl": ["0", "1000", "-1"],
    "x-max-length": ["1", "0"],
    "x-overflow": ["reject-publish", "no"],
    "x-dead-letter-exchange": ["amq.fanout", ""],
    "x-queue-type": ["quorum", "classic", "stream"],
    "x-single-active-consumer": ["true"],
    "x-queue-name": ["a", "named"],
    "x-priority": ["1", "-5"],
    "user-id": ["guest", "eve"],
    "CC": ["a"],
    "content-length": ["0", "1", "5"],
}
# Without these, nearly every frame would be refused.
NEEDED = {
    "SEND": ("destination",),
    "SUBSCRIBE": ("destination", "id"),
    "UNSUBSCRIBE": ("id",),
    "ACK": ("id", "message-id"),
    "NACK": ("id", "message-id"),
    "BEGIN": ("transaction",),
    "COMMIT": ("transaction",),
    "ABORT": ("transaction",),
}


def any_frame(chance: Random, session: str) -> bytes:
    command = chance.choice(COMMANDS)
    names = {name for name in NEEDED.get(command, ()) if chance.random() < 0.97}
    names |= {name for name in HEADERS if chance.random() < 0.03}
    headers = {
        name: chance.choice(HEADERS[name][:3] if chance.random() < 0.8 else HEADERS[name]) for name in names
    }
    made = frame(command, chance.choice([b"", b"hello", b"x" * 5000]), **headers)
    return made.replace(b"SESSION", session.encode())


@pytest.mark.slow
@pytest.mark.parametrize("seed", many(0, 6))
def test_any_frames_in_any_order(broker: StompBroker, seed: int) -> None:
    chance = Random(seed)
    for _ in range(60):
        client = broker.open()
        session = client.connect(chance.choice(["1.0", "1.1", "1.2", "1.2"]))["session"]
        # A peer that is closed for a fault may not take the rest.
        with contextlib.suppress(OSError):
            for _ in range(chance.randint(1, 25)):
                client.socket.sendall(any_frame(chance, session))
            if chance.random() < 0.5:
                client.socket.shutdown(1)
                while client.socket.recv(65536):
                    pass
        client.socket.close()
    broker.wait(lambda: not broker.rows("connections"))
    assert broker.rows("consumers") == []
    assert {row["messages_unacknowledged"] for row in broker.rows("queues")} <= {0}
    (state,) = broker.kernel.engine_states()
    assert state.state == "running", state.last_failure
    with broker.connect() as client:
        assert client.ask("SEND", destination="/queue/fine").command == "RECEIPT"
