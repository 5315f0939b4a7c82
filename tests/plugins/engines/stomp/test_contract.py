"""STOMP passes the checks that every front end has to pass."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kernel.testing.fixtures import KernelFactory
from plugins.engines.broker.front_end_checks import FRONT_END_CHECKS, FrontEndSubject

CONNECT = b"CONNECT\naccept-version:1.2\nhost:/\nlogin:guest\npasscode:guest\n\n\0\n"
SEND = b"SEND\ndestination:/queue/hello\nreceipt:published\n\nhello\0\n"
SUBSCRIBE = b"SUBSCRIBE\nid:1\ndestination:/queue/hello\nack:client\n\n\0"


@pytest.mark.usefixtures("short_login_delay", "eager_alarms")
@pytest.mark.parametrize("check", FRONT_END_CHECKS, ids=lambda check: check.__name__)
def test_it_keeps_the_contract(
    check: Callable[[FrontEndSubject], None], kernel_factory: KernelFactory
) -> None:
    check(
        FrontEndSubject(
            listener={"protocol": "stomp"},
            publish=CONNECT + SEND,
            publish_again=SEND,
            published=b"receipt-id:published\n",
            take=CONNECT + SUBSCRIBE,
            kernels=kernel_factory,
            subprotocol="v12.stomp",
        )
    )
