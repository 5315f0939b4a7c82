"""Queues with x-expires: what is a use of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from plugins.protocols.amqp091.methods import basic, queue
from plugins.protocols.amqp091.methods.method import Method
from tests.plugins.engines.amqp.still_host import StillServer


@pytest.mark.parametrize(
    "use",
    [
        queue.Declare(queue="q", passive=True),
        queue.Declare(queue="q", arguments={"x-expires": 1000}),
        basic.Get(queue="q"),
    ],
    ids=["passive declaration", "declaration", "get"],
)
def test_a_use_of_a_queue_begins_its_time_anew(still: Callable[..., StillServer], use: Method) -> None:
    server = still(heartbeat=0)
    client = server.connect()
    client.send(queue.Declare(queue="q", arguments={"x-expires": 1000}))
    server.host.process()
    queues = server.engine.broker.vhost("/").queues
    for _ in range(3):
        server.host.pass_time(0.8)
        client.send(use)
        server.host.process()
        assert "q" in queues
    server.host.pass_time(1.1)
    server.host.process()
    assert "q" not in queues
