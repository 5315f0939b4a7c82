"""The AMQP server with a data directory: what a client was told is so, whatever happens to the process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pika
import pytest

from tests.plugins.engines.amqp.conftest import Server

pytestmark = pytest.mark.peer("pika")

PERSISTENT = pika.BasicProperties(delivery_mode=2, headers={"x": 1})
Serve = Callable[..., Server]


def test_confirmed_messages_and_definitions_outlive_the_broker(serve: Serve, tmp_path: Path) -> None:
    first = serve(data_dir=str(tmp_path))
    channel = first.channel()
    channel.confirm_delivery()
    channel.exchange_declare("logs", "topic", durable=True)
    channel.queue_declare("q", durable=True)
    channel.queue_bind("q", "logs", "a.#")
    for number in range(10):
        channel.basic_publish("logs", "a.b", b"%d" % number, PERSISTENT)
    method, _, _ = channel.basic_get("q")
    channel.basic_ack(method.delivery_tag)
    channel.basic_get("q")
    for connection in first._connections:
        connection.close()
    first.host.call(first.engine.stop)
    second = serve(data_dir=str(tmp_path))
    channel = second.channel()
    assert channel.queue_declare("q", passive=True).method.message_count == 9
    got = [channel.basic_get("q", auto_ack=True) for _ in range(9)]
    assert [body for _, _, body in got] == [b"%d" % number for number in range(1, 10)]
    assert [method.redelivered for method, _, _ in got] == [True] + [False] * 8
    assert got[0][1].headers == {"x": 1}
    channel.basic_publish("logs", "a.c", b"routed")
    assert channel.basic_get("q", auto_ack=True)[2] == b"routed"


def test_a_transaction_is_safe_when_it_is_committed(serve: Serve, tmp_path: Path) -> None:
    server = serve(data_dir=str(tmp_path))
    channel = server.channel()
    channel.queue_declare("q", durable=True)
    channel.tx_select()
    channel.basic_publish("", "q", b"committed", PERSISTENT)
    channel.tx_commit()
    store = server.host.call(lambda: server.engine.broker.store)
    assert store.safe == store.mark
    assert b"committed" in b"".join(path.read_bytes() for path in tmp_path.glob("*.log"))


def test_statistics_tell_of_the_store(serve: Serve, tmp_path: Path) -> None:
    server = serve(data_dir=str(tmp_path))
    server.channel().queue_declare("q", durable=True)
    figures = server.engine.statistics()["store"]
    assert (figures["segments"], figures["fsyncs"], figures["damaged_records"]) == (1, 1, 0)
    assert figures["bytes"] == sum(path.stat().st_size for path in tmp_path.glob("*.log"))
