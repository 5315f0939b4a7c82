"""The beanstalk front end passes the checks of the broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kernel_beanstalk.commands import CommandReader

from kernel import PluginRegistry
from kernel.testing.fixtures import KernelFactory
from plugins.engines.broker.front_end_checks import FRONT_END_CHECKS, FrontEndSubject


@pytest.mark.parametrize("check", FRONT_END_CHECKS, ids=lambda check: check.__name__)
def test_it_keeps_the_contract(
    check: Callable[[FrontEndSubject], None], kernel_factory: KernelFactory, registry: PluginRegistry
) -> None:
    check(
        FrontEndSubject(
            listener={"protocol": "beanstalk"},
            publish=b"use hello\r\nput 0 0 60 5\r\nhello\r\n",
            published=b"INSERTED",
            take=b"watch hello\r\nreserve\r\n",
            kernels=kernel_factory,
            registry=registry,
            subprotocol="beanstalk",
        )
    )


def test_commands_may_come_byte_by_byte() -> None:
    reader = CommandReader(100)
    found = []
    for octet in b"use a\r\nput 0 0 1 2\r\nhi\r\nreserve\r\n":
        reader.feed(bytes((octet,)))
        while (command := reader.next()) is not None:
            found.append((command.name, command.body))
    assert found == [("use", b""), ("put", b"hi"), ("reserve", b"")]
