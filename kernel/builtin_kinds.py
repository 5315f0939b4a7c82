"""The kernel's own routers and thread kinds, registered with the same hooks that plugins use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kernel import hookimpl
from kernel.contracts.kinds import RouterKind, ThreadKind
from kernel.contracts.router import Router
from kernel.contracts.thread import EngineThread, ThreadSetup


# The functions below import what they make only when they are called, as those of plugins do: the registry is
# loaded by every command, and most commands start no thread.
def _fan_out(_: Any) -> Router:
    from kernel.routing.fan_out import FanOut

    return FanOut()


def _round_robin(_: Any) -> Router:
    from kernel.routing.round_robin import RoundRobin

    return RoundRobin()


def _by_key(_: Any) -> Router:
    from kernel.routing.by_key import ByKey

    return ByKey()


def _by_prefix(_: Any) -> Router:
    from kernel.routing.by_prefix import ByPrefix

    return ByPrefix()


def _reply(_: Any) -> Router:
    from kernel.routing.reply import Reply

    return Reply()


def _others(_: Any) -> Router:
    from kernel.routing.others import Others

    return Others()


def _tap(_: Any) -> Router:
    from kernel.routing.tap import Tap

    return Tap()


def _poll_thread(setup: ThreadSetup) -> EngineThread:
    from kernel.threads.poll_thread import PollThread

    return PollThread(setup.name, setup.dispatcher, setup.report, setup.options)


def _guest_thread(setup: ThreadSetup) -> EngineThread:
    from kernel.threads.guest_thread import GuestThread

    return GuestThread(setup.name, setup.dispatcher, setup.report)


def _process_thread(setup: ThreadSetup) -> EngineThread:
    from kernel.threads.process_thread import ProcessThread

    return ProcessThread(setup)


@hookimpl
def register_routers() -> Iterable[RouterKind]:
    """Fan-out, round robin, by key, by prefix, reply, others, tap."""
    return [
        RouterKind(name="fan-out", summary="every destination gets every message", create=_fan_out),
        RouterKind(
            name="round-robin",
            summary="each message goes to the next destination that can take it",
            create=_round_robin,
            one_of_many=True,
        ),
        RouterKind(
            name="by-key",
            summary="each message goes to the destinations that have subscribed to its key",
            create=_by_key,
            # This and ``one_of_many`` decide what a route does when a pipe is full and when a reader leaves:
            # see the head of ``kernel/dispatcher/route.py``.
            by_content=True,
        ),
        RouterKind(
            name="by-prefix",
            summary="as by-key; a message without a key goes to those that have subscribed to its first bytes",
            create=_by_prefix,
            by_content=True,
        ),
        RouterKind(
            # Not ``one_of_many``: when the port that an answer is for is full or gone, no other one may have
            # it.
            name="reply",
            summary="an answer goes to the connection that its question came from",
            create=_reply,
            by_content=True,
            by_name=True,
        ),
        RouterKind(
            name="others",
            summary="every destination but the one that the message came from, by way of a hub",
            create=_others,
            by_content=True,
            by_name=True,
        ),
        RouterKind(
            # Not ``by_content`` although it has ``wants``: every pipe gets everything.
            name="tap",
            summary="every destination gets every message, and a message that nobody else wants stays unwanted",
            create=_tap,
        ),
    ]


@hookimpl
def register_thread_kinds() -> Iterable[ThreadKind]:
    """Poll threads, guests and processes."""
    from kernel.threads.options import PollThreadOptions, ProcessOptions

    return [
        ThreadKind(
            name="poll",
            summary="a thread of its own that runs trio and hosts engines",
            options=PollThreadOptions,
            create=_poll_thread,
        ),
        ThreadKind(
            name="guest",
            summary="hosts engines in the application's own trio run",
            create=_guest_thread,
            guest=True,
        ),
        ThreadKind(
            name="process",
            summary="a process of its own, with a thread that runs trio and hosts engines",
            options=ProcessOptions,
            create=_process_thread,
            apart=True,
        ),
    ]
