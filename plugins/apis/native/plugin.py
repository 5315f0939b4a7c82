"""The native API as a plugin."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kernel import hookimpl
from kernel.contracts.assurance import Assurance
from kernel.contracts.kinds import ApiKind, WalkKind

if TYPE_CHECKING:
    from kernel.contracts.api import Api, ApiSetup
    from kernel.contracts.walk import Walk


@hookimpl
def register_apis() -> Iterable[ApiKind]:
    """Offer channels for threads, and for tasks of trio and of asyncio."""
    return [
        ApiKind(
            name="native",
            summary="an application's channel: blocking calls, or callback, signal or descriptor",
            options="plugins.apis.native.options:NativeOptions",
            assures=_assures,
            create=_create,
        ),
        ApiKind(
            name="trio",
            summary="the native API for trio tasks: async send and receive, async for",
            options="plugins.apis.native.options:NativeOptions",
            assures=_assures,
            create=_create_trio,
        ),
        ApiKind(
            name="asyncio",
            summary="the native API for asyncio's tasks: async send and receive, async for, request",
            options="plugins.apis.native.options:NativeOptions",
            assures=_assures,
            create=_create_asyncio,
        ),
    ]


@hookimpl
def register_walks() -> Iterable[WalkKind]:
    """Offer the walk from one application to another."""
    return [WalkKind(name="native", summary="from an application to another, over tcp", load=_walk)]


def _assures(options: Any) -> Assurance:
    how = "the application has taken it" if options.auto_confirm else "the application has called confirm"
    return Assurance(
        acknowledges="wait_confirmed",
        waits=True,
        confirms="memory" if options.auto_confirm else "peer",
        how=how,
    )


def _walk() -> Walk:
    from plugins.apis.native.walk import walk

    return walk()


def _create(setup: ApiSetup) -> Api:
    from plugins.apis.native.channel import Channel

    return Channel(setup.name, setup.join, setup.options)


def _create_trio(setup: ApiSetup) -> Api:
    from plugins.apis.native.channel import Channel
    from plugins.apis.native.trio_channel import TrioChannel

    return TrioChannel(Channel(setup.name, setup.join, setup.options))


def _create_asyncio(setup: ApiSetup) -> Api:
    from plugins.apis.native.asyncio_channel import AsyncioChannel, running_loop
    from plugins.apis.native.channel import Channel

    # Before the channel joins: without a loop nobody would close it.
    running_loop(setup.name)
    return AsyncioChannel(Channel(setup.name, setup.join, setup.options))
