"""Microseconds a message for encoding and decoding AMQP, beside pamqp: ``python benchmarks/amqp_codec.py``.

100 octets of body (60 to 139 where sizes are mixed), delivery mode 2; the best of several rounds.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from pamqp import body as their_body
from pamqp import commands, frame, header

from kernel.contracts.message import Batch, Envelope, batch_of
from plugins.protocols.amqp091.connection import ClientConnection, ServerConnection
from plugins.protocols.amqp091.events import LoginRequested, OpenRequested
from plugins.protocols.amqp091.options import ClientOptions, ServerOptions

COUNT = 6000
BODY = bytes(range(100))
ONE = Envelope(key="quotes.nyse.ibm", exchange="amq.topic", persistent=True)


def connected() -> tuple[ServerConnection, ClientConnection]:
    """Return both sides with channel 1 open."""
    server, client = ServerConnection(ServerOptions(), 0.0), ClientConnection(ClientOptions(), 0.0)
    for turn in range(6):
        for event in server.receive_data(b"".join(client.data_to_send()), 0.0):
            if isinstance(event, LoginRequested):
                server.accept_login()
            elif isinstance(event, OpenRequested):
                server.accept_open()
        client.receive_data(b"".join(server.data_to_send()), 0.0)
        if turn == 3:
            client.open_channel(1)
    return server, client


def cost(call: Callable[[], object], *, count: int = COUNT, rounds: int = 15) -> float:
    """Return the microseconds a message, in the best of several calls that work on ``count`` messages."""
    best = float("inf")
    for _ in range(rounds):
        begin = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - begin)
    return best / count * 1e6


def measure(name: str, call: Callable[[], object], *, count: int = COUNT, rounds: int = 15) -> None:
    """Print what a call costs."""
    print(f"{name:<58} {cost(call, count=count, rounds=rounds):7.3f} us a message")


def mixed_batches(count: int = COUNT) -> list[Batch]:
    """Return batches of one message each: 50 keys, sizes from 60 to 139."""
    chance = random.Random(1)
    envelopes = [Envelope(key=f"quotes.nyse.{n}", exchange="amq.topic", persistent=True) for n in range(50)]
    return [batch_of([bytes(chance.randrange(60, 140))], chance.choice(envelopes)) for _ in range(count)]


def stream_of(client: ClientConnection, batches: list[Batch]) -> bytes:
    """Return what a client writes for these batches."""
    for batch in batches:
        client.publish(1, batch)
    return b"".join(client.data_to_send())


def in_chunks(server: ServerConnection, stream: bytes) -> None:
    """Read a stream as a socket gives it: 256 KiB at a time."""
    for start in range(0, len(stream), 1 << 18):
        server.receive_data(stream[start : start + (1 << 18)], 0.0)


def measure_ours() -> None:
    """Measure this codec."""
    server, client = connected()
    chance = random.Random(2)
    equal = batch_of([BODY] * COUNT, ONE)
    sizes = batch_of([bytes(chance.randrange(60, 140)) for _ in range(COUNT)], ONE)
    streams = {
        "decode publish, equal run": stream_of(client, [equal]),
        "decode publish, one key, sizes mixed": stream_of(client, [sizes]),
        "decode publish, 50 keys and sizes mixed": stream_of(client, mixed_batches()),
        "decode publish, runs of 30 of 50 keys": stream_of(
            client,
            [
                batch_of([BODY] * 30, Envelope(key=f"quotes.{n % 50}", exchange="amq.topic", persistent=True))
                for n in range(COUNT // 30)
            ],
        ),
        "decode publish, each with its own correlation id": stream_of(
            client,
            [
                batch_of([BODY], Envelope(key="rpc", properties={"correlation_id": str(n)}))
                for n in range(COUNT)
            ],
        ),
    }
    for name, stream in streams.items():
        measure(name, lambda stream=stream: in_chunks(server, stream))  # type: ignore[misc]

    def deliver(batch: Batch) -> bytes:
        server.send_deliveries(1, "ctag1.0123456789", 1, False, batch)
        return b"".join(server.data_to_send())

    def publish(batch: Batch) -> bytes:
        client.publish(1, batch)
        return b"".join(client.data_to_send())

    measure("encode deliver, equal run", lambda: deliver(equal))
    measure("encode deliver, sizes mixed", lambda: deliver(sizes))
    measure("encode publish, equal run", lambda: publish(equal))
    measure("encode publish, sizes mixed", lambda: publish(sizes))
    delivered = deliver(equal)
    measure("decode deliver, equal run", lambda: client.receive_data(delivered, 0.0))
    delivered_sizes = deliver(sizes)
    measure("decode deliver, sizes mixed", lambda: client.receive_data(delivered_sizes, 0.0))
    for tag in range(1, COUNT + 1):
        client.send_acknowledgement(1, tag)
    acknowledgements = b"".join(client.data_to_send())
    measure("decode basic.ack, consecutive tags", lambda: server.receive_data(acknowledgements, 0.0))


def their_frames(method: commands.Basic.Publish | commands.Basic.Deliver, body: bytes) -> bytes:
    """Return the three frames of a message as pamqp encodes them."""
    content = header.ContentHeader(body_size=len(body), properties=commands.Basic.Properties(delivery_mode=2))
    return b"".join(frame.marshal(each, 1) for each in (method, content, their_body.ContentBody(body)))


def their_encoding(kind: str, batches: list[Batch]) -> bytes:
    """Return these messages with basic.publish or basic.deliver as pamqp encodes them."""
    frames = []
    for batch in batches:
        exchange, key = batch.envelope.exchange, batch.envelope.key
        for tag, body in enumerate(batch.bodies, 1):
            if kind == "publish":
                frames.append(
                    their_frames(commands.Basic.Publish(exchange=exchange, routing_key=key), bytes(body))
                )
            else:
                method = commands.Basic.Deliver("ctag1.0123456789", tag, False, exchange, key)
                frames.append(their_frames(method, bytes(body)))
    return b"".join(frames)


def their_decoding(stream: bytes) -> None:
    """Have pamqp read all frames."""
    position = 0
    while position < len(stream):
        size, _, _ = frame.unmarshal(stream[position : position + 300])
        position += size


def measure_pamqp() -> None:
    """Measure pamqp on fewer messages: it has no batches."""
    count = 500
    batches = [batch_of([BODY] * count, ONE)]
    stream = their_encoding("publish", batches)
    measure("pamqp: decode publish", lambda: their_decoding(stream), count=count, rounds=5)
    for kind in ("publish", "deliver"):
        measure(f"pamqp: encode {kind}", lambda k=kind: their_encoding(k, batches), count=count, rounds=5)  # type: ignore[misc]


if __name__ == "__main__":
    measure_ours()
    measure_pamqp()
