"""A body larger than ``max_body_size``: which method the close names."""

from __future__ import annotations

from typing import Any

from kernel.contracts.message import batch_of
from plugins.protocols.amqp091.options import ClientOptions


def test_a_client_names_the_method_whose_body_is_too_large(make_pair: Any) -> None:
    pair = make_pair(client=ClientOptions(max_body_size=10))
    pair.exchange()
    pair.client.open_channel(1)
    pair.exchange()
    pair.server.send_deliveries(1, "tag", 1, False, batch_of([b"a" * 11]))
    for closed, *_ in reversed(pair.exchange()):
        assert (closed.reply_code, closed.class_id, closed.method_id) == (311, 60, 60)
