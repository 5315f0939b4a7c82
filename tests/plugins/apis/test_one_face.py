"""Channels of all kinds have one face: who knows one of them knows the others."""

from __future__ import annotations

import inspect

import pytest

from plugins.apis.direct.channel import DirectChannel
from plugins.apis.native.asyncio_channel import AsyncioChannel
from plugins.apis.native.channel import Channel
from plugins.apis.native.trio_channel import TrioChannel
from tests.notes import for_each

WAIT = {  # ``async`` in channels for tasks
    "send",
    "send_many",
    "send_parts",
    "send_message",
    "send_batches",
    "reply",
    "request",
    "receive",
    "receive_many",
    "receive_message",
    "receive_batch",
    "wait_confirmed",
    "wait_subscribed",
}
DO_NOT_WAIT = {
    "send_nowait",
    "receive_nowait",
    "has_something",
    "all_confirmed",
    "confirm",
    "subscribe",
    "unsubscribe",
    "statistics",
    "close",
    "closed",
    "name",
}
FACE = WAIT | DO_NOT_WAIT
LACKING: dict[type, dict[str, str]] = {
    Channel: {},
    TrioChannel: {},
    AsyncioChannel: {},
    DirectChannel: dict.fromkeys(("all_confirmed", "wait_confirmed"), "no route that could confirm")
    | dict.fromkeys(("subscribe", "unsubscribe", "wait_subscribed"), "an option of the protocol does it")
    | {
        "confirm": "what was received is confirmed when the application asks for more",
        "request": "the peer may send anything at any time",
        "send_nowait": "a send writes to the socket",
        "statistics": "there is no port that counts",
        "name": "it has the peer's: peer",
    },
}
MORE: dict[type, set[str]] = {
    # for other loops; a channel for tasks uses them itself
    Channel: {"fileno", "on_arrival", "signal_on_arrival"},
    TrioChannel: set(),
    AsyncioChannel: set(),
    DirectChannel: {"fileno", "peer"},
}
FOR_THE_KERNEL = {"dispose", "kernel_closed", "on_confirmed", "on_output", "on_writable"}
FOR_CHANNELS_FOR_TASKS = {
    "answer",
    "ask",
    "caller",
    "forget",
    "on_close",
    "on_served",
    "serve",
    "warn_without_route",
}


def public(channel: type) -> set[str]:
    """Return the names of a class and those that its instances get in ``__init__``."""
    names = set(dir(channel))
    for each in channel.__mro__:
        init = vars(each).get("__init__")
        if inspect.isfunction(init):
            source = inspect.getsource(init)
            names |= {
                word.partition(":")[0].partition(" ")[0] for word in source.split("self.")[1:] if is_set(word)
            }
    return {name for name in names if not name.startswith("_")}


def is_set(word: str) -> bool:
    """Whether ``self.`` is followed by an attribute that is assigned to."""
    name, _, rest = word.partition(" ")
    return name.rstrip(":").isidentifier() and (rest.startswith("=") or name.endswith(":"))


@pytest.mark.parametrize("channel", LACKING)
def test_a_kind_has_the_face_and_what_it_lacks_has_a_reason(channel: type) -> None:
    has = public(channel) - FOR_THE_KERNEL - FOR_CHANNELS_FOR_TASKS
    assert has == FACE - set(LACKING[channel]) | MORE[channel]


@for_each("channel", [TrioChannel, AsyncioChannel])
@for_each("name", sorted(WAIT))
def test_what_may_wait_is_asynchronous_for_tasks_and_takes_the_same(channel: type, name: str) -> None:
    method = getattr(channel, name)
    assert inspect.iscoroutinefunction(method)
    if name == "send":  # of a thread's channel it is an attribute, for speed
        return
    theirs = inspect.signature(method).parameters
    ours = dict(inspect.signature(getattr(Channel, name)).parameters)
    # The loops have their own ways to limit a wait.
    ours.pop("timeout", None)
    assert [*theirs.values()] == [*ours.values()]


@for_each("name", sorted(WAIT - set(LACKING[DirectChannel]) - {"send"}))
def test_a_direct_channel_takes_the_same(name: str) -> None:
    theirs = inspect.signature(getattr(DirectChannel, name)).parameters
    ours = dict(inspect.signature(getattr(Channel, name)).parameters)
    if "timeout" not in theirs:  # a send writes to the socket
        ours.pop("timeout")
    assert [*theirs] == [*ours]
