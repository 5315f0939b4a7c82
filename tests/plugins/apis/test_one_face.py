"""Channels of all kinds have one face: who knows one of them knows the others."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import trio

from kernel import EnginePlan, Kernel, Message, Plan, RoutePlan
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
FOR_THE_KERNEL = {"dispose", "kernel_closed", "on_confirmed", "on_lone", "on_output", "on_writable"}
FOR_CHANNELS_FOR_TASKS = {
    "answer",
    "ask",
    "caller",
    "forget",
    "leased",
    "on_close",
    "on_served",
    "receive_leased",
    "serve",
    "waited",
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


@for_each("name", ["send", "send_many", "send_parts", "send_nowait", "request"])
@for_each("channel", [Channel, TrioChannel, AsyncioChannel, DirectChannel])
def test_headers_are_a_keyword_of_all_that_makes_an_envelope(channel: type, name: str) -> None:
    if name in LACKING[channel] or (channel, name) == (Channel, "send"):  # an attribute, see below
        return
    if name == "send_nowait":  # channels for tasks have that of the channel for threads
        channel = Channel
    assert inspect.signature(getattr(channel, name)).parameters["headers"].default is None


HEADERS = {"attempt": 1, "who": "me"}
PAIR = Plan(
    engines=tuple(EnginePlan(name=name, kind="native") for name in ("asker", "answerer")),
    routes=(
        RoutePlan(source="asker", targets=("answerer",)),
        RoutePlan(source="answerer", targets=("asker",), router="reply"),
    ),
)
CALLS: dict[str, Callable[[Any, Mapping[str, Any] | None], Any]] = {
    "send": lambda channel, headers: channel.send(b"body", headers=headers),
    "send with a key": lambda channel, headers: channel.send(b"body", key="k", headers=headers),
    "send_many": lambda channel, headers: channel.send_many([b"body"], key="k", headers=headers),
    "send_parts": lambda channel, headers: channel.send_parts([b"bo", b"dy"], headers=headers),
    "send_nowait": lambda channel, headers: channel.send_nowait(b"body", key="k", headers=headers),
}
"""All with the same body; those that do not say so have no key."""
KEYS = {"send": "", "send_parts": ""}


def _in_a_thread(kernel: Kernel, call: Callable[[Any], Any]) -> None:
    with kernel.open("asker") as channel:
        call(channel)


def _in_trio(kernel: Kernel, call: Callable[[Any], Any]) -> None:
    async def main() -> None:
        async with kernel.open("asker", "trio") as channel:
            called = call(channel)
            if called is not None:
                await called

    trio.run(main)


def _in_asyncio(kernel: Kernel, call: Callable[[Any], Any]) -> None:
    async def main() -> None:
        async with kernel.open("asker", "asyncio") as channel:
            called = call(channel)
            if called is not None:
                await called

    asyncio.run(main())


Do = Callable[[Kernel, Callable[[Any], Any]], None]
KINDS = pytest.mark.parametrize("do", [_in_a_thread, _in_trio, _in_asyncio])


@KINDS
@for_each("name", sorted(CALLS))
@for_each("headers", [HEADERS, {}, None])
def test_headers_arrive(do: Do, name: str, headers: Mapping[str, Any] | None) -> None:
    given = None if headers is None else dict(headers)
    with Kernel(PAIR) as kernel, kernel.open("answerer") as answerer:
        do(kernel, lambda channel: CALLS[name](channel, given))
        message = answerer.receive_message(60)
    assert bytes(message) == b"body"
    assert message.key == KEYS.get(name, "k")
    assert message.envelope.properties.get("headers") == (headers or None)


@KINDS
def test_a_question_has_headers_and_so_has_its_answer(do: Do) -> None:
    answers: list[Message] = []

    def ask(channel: Any) -> Any:
        asked = channel.request(b"how often?", key="k", headers=HEADERS)
        if isinstance(asked, Message):
            answers.append(asked)
            return None

        async def wait() -> None:
            answers.append(await asked)

        return wait()

    def answer(kernel: Kernel) -> None:
        with kernel.open("answerer") as channel:
            question = channel.receive_message(60)
            assert (question.key, question.envelope.properties["headers"]) == ("k", HEADERS)
            channel.reply(question, b"once")

    with Kernel(PAIR) as kernel:
        answering = threading.Thread(target=answer, args=(kernel,))
        answering.start()
        do(kernel, ask)
        answering.join()
    assert [(bytes(each), each.envelope.properties["headers"]) for each in answers] == [(b"once", HEADERS)]


def test_headers_that_change_after_the_call_are_sent_as_they_were() -> None:
    with Kernel(PAIR) as kernel, kernel.open("asker") as asker, kernel.open("answerer") as answerer:
        headers = {"attempt": 1}
        for _ in range(3):
            asker.send(b"x", headers=headers)
            headers["attempt"] += 1
        got = [answerer.receive_message(60).envelope.properties["headers"] for _ in range(3)]
    assert got == [{"attempt": 1}, {"attempt": 2}, {"attempt": 3}]


def test_messages_with_headers_and_without_keep_their_order() -> None:
    """They take the slow path and the fast one."""
    with Kernel(PAIR) as kernel, kernel.open("asker") as asker, kernel.open("answerer") as answerer:
        for number in range(300):
            body = b"%d" % number
            if number % 3:
                asker.send(body, key="k" if number % 2 else None)
            else:
                asker.send(body, headers={"number": number})
        got = [answerer.receive_message(60) for _ in range(300)]
    assert [bytes(each) for each in got] == [b"%d" % number for number in range(300)]
    assert [each.envelope.properties.get("headers") for each in got] == [
        None if number % 3 else {"number": number} for number in range(300)
    ]
