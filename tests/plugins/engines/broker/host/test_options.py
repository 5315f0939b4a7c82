"""Names in a broker's options that lead nowhere are told before it starts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from plugins.engines.broker.host.options import BrokerOptions
from tests.notes import for_each


@for_each(
    "options, complaint",
    [
        ({"vhosts": ["red", "blue"]}, "vhost: '/' is not in vhosts"),
        ({"queues": [{"name": "q", "vhost": "red"}]}, r"queues\[0\].vhost: 'red' is not in vhosts"),
        ({"exchanges": [{"name": "e", "vhost": "red"}]}, r"exchanges\[0\].vhost: 'red' is not in vhosts"),
        ({"bindings": [{"exchange": "amq.topic", "queue": "q"}]}, "bindings: there is no queue 'q'"),
        (
            {"queues": [{"name": "q"}], "bindings": [{"exchange": "e", "queue": "q"}]},
            "bindings: there is no exchange 'e'",
        ),
        ({"bindings": [{"exchange": "amq.topic", "to_exchange": "e"}]}, "there is no exchange 'e'"),
    ],
)
def test_an_unknown_name_is_told(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=complaint):
        msgspec.convert(options, BrokerOptions)
    for more in ({"definitions": "d.json"}, {"data_dir": "d"}):  # may have what is missing here
        msgspec.convert({**options, **more}, BrokerOptions)


def test_what_is_declared_may_be_named() -> None:
    msgspec.convert(
        {
            "vhosts": ["/", "red"],
            "exchanges": [{"name": "e", "vhost": "red"}],
            "queues": [{"name": "q", "vhost": "red"}],
            "bindings": [
                {"exchange": "e", "queue": "q", "vhost": "red"},
                {"exchange": "amq.topic", "to_exchange": "e", "vhost": "red"},
            ],
        },
        BrokerOptions,
    )
