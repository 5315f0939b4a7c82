"""The messaging kernel: dispatcher, pipes, poll threads, and the contracts that plugins keep.

Start reading at ``kernel/contracts/`` (what flows and who may call whom), then ``kernel/pipes/``,
``kernel/dispatcher/`` and ``kernel/threads/``.  Importing this package imports nothing heavy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel.own_plugins import find_behind_others

if TYPE_CHECKING:
    from kernel.cli.event_log import EventLog
    from kernel.contracts.errors import KernelClosed, KernelError, TimedOut, WouldBlock, WrongThread
    from kernel.contracts.loan import lend
    from kernel.contracts.message import Envelope, Message
    from kernel.hook_markers import hookimpl, hookspec
    from kernel.pipes.water_marks import WaterMarks
    from kernel.plugins import Origin, PluginRegistry
    from kernel.topology.check import load_plan
    from kernel.topology.control import ask, engine_with, find_running
    from kernel.topology.one_link import connect, listen, request
    from kernel.topology.plan import EnginePlan, Plan, RoutePlan, ThreadPlan
    from kernel.topology.rehearsing import rehearse
    from kernel.topology.system import Kernel
    from plugins.apis.native.asyncio_channel import AsyncioChannel
    from plugins.apis.native.channel import Channel
    from plugins.apis.native.trio_channel import TrioChannel

API_LEVEL = 1
"""Raised when a hook or a contract method is removed; a plugin may demand at most this level."""

# Before anything of ``plugins`` is imported: an application may have a package of that name.
find_behind_others()

__all__ = [
    "API_LEVEL",
    "AsyncioChannel",
    "Channel",
    "EnginePlan",
    "Envelope",
    "EventLog",
    "Kernel",
    "KernelClosed",
    "KernelError",
    "Message",
    "Origin",
    "Plan",
    "PluginRegistry",
    "RoutePlan",
    "ThreadPlan",
    "TimedOut",
    "TrioChannel",
    "WaterMarks",
    "WouldBlock",
    "WrongThread",
    "ask",
    "connect",
    "engine_with",
    "find_running",
    "hookimpl",
    "hookspec",
    "lend",
    "listen",
    "load_plan",
    "rehearse",
    "request",
]


def __getattr__(name: str) -> object:
    """Give ``kernel.Kernel`` and its like without importing them before they are wanted."""
    # The module's ``__getattr__`` (PEP 562). A plugin module imports this package for ``hookimpl`` alone, and
    # every start loads all plugin modules: nothing that they do not use may come along.
    import importlib

    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'kernel' has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)


# The same names stand above for type checkers, which do not run ``__getattr__``.
_LAZY = {
    "hookimpl": "kernel.hook_markers",
    "hookspec": "kernel.hook_markers",
    "Kernel": "kernel.topology.system",
    "Plan": "kernel.topology.plan",
    "EnginePlan": "kernel.topology.plan",
    "RoutePlan": "kernel.topology.plan",
    "ThreadPlan": "kernel.topology.plan",
    "WaterMarks": "kernel.pipes.water_marks",
    "Origin": "kernel.plugins",
    "PluginRegistry": "kernel.plugins",
    "Message": "kernel.contracts.message",
    "Envelope": "kernel.contracts.message",
    "KernelClosed": "kernel.contracts.errors",
    "KernelError": "kernel.contracts.errors",
    "TimedOut": "kernel.contracts.errors",
    "WouldBlock": "kernel.contracts.errors",
    "WrongThread": "kernel.contracts.errors",
    "EventLog": "kernel.cli.event_log",
    "ask": "kernel.topology.control",
    "engine_with": "kernel.topology.control",
    "find_running": "kernel.topology.control",
    "load_plan": "kernel.topology.check",
    "rehearse": "kernel.topology.rehearsing",
    "connect": "kernel.topology.one_link",
    "listen": "kernel.topology.one_link",
    "request": "kernel.topology.one_link",
    "lend": "kernel.contracts.loan",
    # The native API is a plugin, but these are the objects that the kernel's users work with. They are
    # imported only when they are named.
    "AsyncioChannel": "plugins.apis.native.asyncio_channel",
    "Channel": "plugins.apis.native.channel",
    "TrioChannel": "plugins.apis.native.trio_channel",
}
