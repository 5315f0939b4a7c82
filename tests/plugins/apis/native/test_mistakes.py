"""Mistakes of an application raise in its own thread, and harm no engine."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import pytest

from kernel import EnginePlan, Envelope, Kernel, Message, RoutePlan
from kernel.contracts.errors import KernelClosed
from kernel.testing.fixtures import KernelFactory

SECONDS = 10.0


class Topic(StrEnum):
    WEATHER = "weather"


@pytest.mark.parametrize(
    "mistake",
    [
        lambda channel: channel.send(b"body", key=3),
        lambda channel: channel.send(b"body", key=b"weather"),
        lambda channel: channel.send(b"body", key=3, headers={"a": 1}),
        lambda channel: channel.send_many([b"body"], key=3),
        lambda channel: channel.send_many([b"body"], key=3, headers={"a": 1}),
        lambda channel: channel.send_parts([b"body"], key=3),
        lambda channel: channel.send_message(Message(b"body", "weather")),
        lambda channel: channel.send_message(Message(b"body", Envelope(key=3))),
        lambda channel: channel.request(b"body", key=3),
        lambda channel: channel.subscribe(3),
        lambda channel: channel.unsubscribe(b"weather"),
    ],
)
def test_what_is_no_text_or_no_envelope_is_refused(
    kernel_factory: KernelFactory, mistake: Callable[[Any], Any]
) -> None:
    kernel = kernel_factory(
        EnginePlan(name="a", kind="native"),
        EnginePlan(name="b", kind="native"),
        RoutePlan(source="a", targets=("b",)),
    )
    with kernel.open("a") as channel, kernel.open("b") as other:
        with pytest.raises(TypeError):
            mistake(channel)
        channel.send(b"sound", key=Topic.WEATHER)
        message = other.receive_message(timeout=SECONDS)
        assert (message.body, message.key) == (b"sound", "weather")
        assert type(message.key) is str


def test_a_kernel_says_that_it_was_not_started_and_what_it_is_made_of() -> None:
    with pytest.raises(KernelClosed, match=r"not started: use it in a `with` block, or call start\(\)"):
        Kernel().open("a")
    with pytest.raises(TypeError, match=r"made of a Plan, not of str; Kernel\.from_file"):
        Kernel("feed.toml")  # type: ignore[arg-type]
