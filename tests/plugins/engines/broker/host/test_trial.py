"""What a start would refuse is found before it, and is named when it happens all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel.contracts.errors import KernelError
from plugins.engines.broker.broker import Broker
from plugins.engines.broker.contract import BrokerOptions
from plugins.engines.broker.host.definitions import declare_all
from plugins.engines.broker.host.durability import open_store
from plugins.engines.broker.host.options import BindingOptions, ExchangeOptions, QueueOptions
from plugins.engines.broker.host.trial import mistakes
from plugins.engines.broker.matchers.direct import DirectMatcher
from tests.plugins.engines.amqp.still_host import StillHost

ORDERS = BrokerOptions(exchanges=(ExchangeOptions(name="orders", type="by-hash"),))


def test_a_type_of_a_plugin_is_good() -> None:
    assert list(mistakes(ORDERS, {"by-hash": lambda arguments: DirectMatcher()})) == []
    known = "known: direct, fanout, headers, topic"
    text = f"exchanges[0] 'orders': unknown exchange type 'by-hash'; {known}"
    assert list(mistakes(ORDERS, {})) == [(("exchanges", 0, "type"), text)]


def test_a_binding_to_what_the_data_dir_has_is_good() -> None:
    options = BrokerOptions(
        data_dir="data",
        vhosts=("/",),
        queues=(QueueOptions(name="jobs", vhost="stored"),),
        bindings=(BindingOptions(exchange="stored", queue="jobs", vhost="stored"),),
    )
    assert list(mistakes(options, {})) == []


def test_what_a_start_refuses_is_named() -> None:
    with pytest.raises(
        KernelError, match=r"exchanges\[0\] 'orders': COMMAND_INVALID - unknown exchange type"
    ):
        declare_all(ORDERS, Broker(), 0.0)


def test_a_data_dir_that_is_a_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(KernelError, match="data_dir = '.*': .*/file is no folder; name another one"):
        open_store(BrokerOptions(data_dir=str(path)), "b", StillHost(), None, 0.0, 0.0, lambda: None)
