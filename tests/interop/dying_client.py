"""A client that goes as far as it is told, says so, and waits to be killed: `dying_client.py PHASE PORT QUEUE`.

It speaks through our own codec, since libraries do not stop in the middle of a frame.
"""

from __future__ import annotations

import socket
import sys
from struct import pack

from plugins.protocols.amqp091.content import encode_properties
from plugins.protocols.amqp091.events import Delivered, Got
from plugins.protocols.amqp091.frames import BODY, HEADER, METHOD, PROTOCOL_HEADER
from plugins.protocols.amqp091.methods import basic, confirm, queue, tx
from tests.plugins.engines.amqp.raw_client import RawClient, frame

BEFORE_LOGIN = {
    "connected": b"",
    "half a protocol header": PROTOCOL_HEADER[:5],
    "waiting for start": PROTOCOL_HEADER,
    "half a start-ok": PROTOCOL_HEADER + frame(METHOD, 0, bytes([0, 10, 0, 11]) + bytes(100))[:50],
}
AFTER_LOGIN = [
    "in a method frame", "before a content header", "in a content header", "before a body", "in a body frame",
    "between body frames", "in a transaction", "unconfirmed", "holding what it got", "holding deliveries",
]  # fmt: skip
PHASES = [*BEFORE_LOGIN, *AFTER_LOGIN]


def go(phase: str, port: int, name: str) -> object:
    """Return what has to be kept alive."""
    if phase in BEFORE_LOGIN:
        wire = socket.create_connection(("127.0.0.1", port))
        wire.sendall(BEFORE_LOGIN[phase])
        return wire
    client = RawClient(port)
    publish = frame(METHOD, 1, basic.Publish(routing_key=name).encode())
    header = frame(HEADER, 1, pack(">HHQ", 60, 0, 100) + encode_properties({}))
    body = frame(BODY, 1, b"lost".ljust(50))
    parts = {
        "in a method frame": publish[:10],
        "before a content header": publish,
        "in a content header": publish + header[:9],
        "before a body": publish + header,
        "in a body frame": publish + header + body[:20],
        "between body frames": publish + header + body,
    }
    if phase in parts:
        client.send_bytes(parts[phase])
    elif phase == "in a transaction":
        client.ask(tx.Select(), tx.SelectOk)
        client.publish(b"lost", name)
        client.ask(queue.Declare(queue=name, passive=True), queue.DeclareOk)
    elif phase == "unconfirmed":
        client.ask(confirm.Select(), confirm.SelectOk)
        client.publish(b"kept", name)
        client.ask(queue.Declare(queue=name, passive=True), queue.DeclareOk)
    elif phase == "holding what it got":
        for _ in range(2):
            client.send(basic.Get(queue=name))
            client.wait_for(Got)
    else:
        client.ask(basic.Qos(prefetch_count=2), basic.QosOk)
        client.ask(basic.Consume(queue=name), basic.ConsumeOk)
        came = 0
        while came < 2:
            came += len(client.wait_for(Delivered).batch)
    return client


if __name__ == "__main__":
    kept = go(sys.argv[1], int(sys.argv[2]), sys.argv[3])
    print("there", flush=True)
    sys.stdin.read()
