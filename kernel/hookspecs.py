"""The hooks of the kernel, in the order in which they are called.

Plugins may announce more of them (``register_kind_groups``).  Hooks are called while a system is built,
started and stopped, and never for a message: a call takes 920 ns.

A plugin module implements the hooks that it needs, marked with ``kernel.hookimpl``, and is announced by an
entry point of the group ``kernel.plugins``.  The module may import ``kernel`` and its own options only.
``create`` of a kind imports the rest when it is called.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kernel import hookspec

if TYPE_CHECKING:
    from kernel.contracts.kinds import (
        ApiKind,
        CommandKind,
        DissectorKind,
        EngineKind,
        KindGroup,
        ProtocolKind,
        RouterKind,
        ThreadKind,
        WalkKind,
    )
    from kernel.topology.plan import Plan
    from kernel.topology.system import Kernel


# First, since a plugin may implement hooks that another one announces here.
@hookspec
def register_kind_groups() -> Iterable[KindGroup[Any]]:  # type: ignore[empty-body]
    """Return groups of kinds that other plugins may register.

    Once, while plugins are loaded; main thread; nothing heavy.
    """


@hookspec
def register_protocols() -> Iterable[ProtocolKind]:  # type: ignore[empty-body]
    """Return sans-I/O protocols.  Once, while plugins are loaded; main thread; nothing heavy."""


@hookspec
def register_engines() -> Iterable[EngineKind]:  # type: ignore[empty-body]
    """Return engines.  Once, while plugins are loaded; main thread; nothing heavy."""


@hookspec
def register_routers() -> Iterable[RouterKind]:  # type: ignore[empty-body]
    """Return routers.  Once, while plugins are loaded; main thread; nothing heavy."""


@hookspec
def register_thread_kinds() -> Iterable[ThreadKind]:  # type: ignore[empty-body]
    """Return kinds of threads.  Once, while plugins are loaded; main thread; nothing heavy."""


@hookspec
def register_apis() -> Iterable[ApiKind]:  # type: ignore[empty-body]
    """Return APIs for application code.  Once, while plugins are loaded; main thread; nothing heavy."""


@hookspec
def register_commands() -> Iterable[CommandKind]:  # type: ignore[empty-body]
    """Return ``kernel`` commands.  Once, while plugins are loaded; main thread; nothing heavy."""


@hookspec
def register_dissectors() -> Iterable[DissectorKind]:  # type: ignore[empty-body]
    """Return protocols that ``kernel inspect`` can read.

    Once, while plugins are loaded; main thread; nothing heavy.
    """


@hookspec
def register_walks() -> Iterable[WalkKind]:  # type: ignore[empty-body]
    """Return walks that ``kernel tour`` can follow.

    Once, while plugins are loaded; main thread; nothing heavy.
    """


# After the kernel's own checks, and only for a plan that has passed them: a hook may rely on what they say.
@hookspec
def check_plan(plan: Plan) -> Iterable[str]:  # type: ignore[empty-body]
    """Return complaints about a topology that the kernel has checked; with any, nothing starts.

    Main thread.
    """


@hookspec
def warn_of_plan(plan: Plan) -> Iterable[str]:  # type: ignore[empty-body]
    """Return warnings about a topology without mistakes: what is possible and probably not meant.

    ``kernel check`` shows them.  Main thread.
    """


# A start does not wait for engines, and a hook that does would hold up the application.
@hookspec
def kernel_started(kernel: Kernel) -> None:
    """Called when the threads and engines were told to start; they may not run yet.

    In the thread that starts the kernel.
    """


# Before applications and threads are told: they still work while this is called.
@hookspec
def kernel_stopping(kernel: Kernel, reason: str) -> None:
    """Called before the kernel stops, also after a failure.  In the thread that closes it: any."""
