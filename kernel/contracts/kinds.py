"""Kinds: what ``register_*`` hooks return.  From a kind come checked options, help and a constructor.

A kind is a name, one line of summary, an options class (a ``msgspec.Struct`` whose fields carry
docstrings) and ``create``, which alone imports what is heavy.  A plugin that is extended by others
defines a subclass of ``Kind`` and announces it with a ``KindGroup``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar
from typing import Protocol as Interface

import msgspec

from kernel.contracts.api import Api, ApiSetup
from kernel.contracts.engine import Engine
from kernel.contracts.protocol import Side as Side
from kernel.contracts.router import Router
from kernel.contracts.system import System
from kernel.contracts.thread import EngineThread, ThreadSetup
from kernel.contracts.walk import Walk

if TYPE_CHECKING:
    import socket


class NoOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """For a kind that has nothing to set."""


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """What all kinds have."""

    name: str
    """How topology files and addresses call it."""
    summary: str
    """One line for ``kernel plugins``."""
    options: type[msgspec.Struct] = NoOptions
    """The options class: its field names, types and docstrings are the TOML section's."""


class ProtocolKind(Kind, frozen=True, kw_only=True):
    """A sans-I/O protocol."""

    create: Callable[[Any, Side], Any]
    """``create(options, side)`` makes one conversation, for each connection anew."""
    carries: Literal["stream", "datagram"] = "stream"


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """What engines of a kind can be inspected for: rows of one sort, as ``Inspectable.inspect`` returns them.

    ``kernel NAME`` prints the rows of all engines of a running system.  Kinds may announce the same name:
    their rows stand in one table, which has the columns of each.
    """

    name: str
    """What is asked for: ``queues``.  A command of that name takes precedence over the table."""
    title: str
    """One line of help for ``kernel NAME``."""
    columns: tuple[str, ...] = ()
    """Keys of a row, in the order of the columns; keys that are not among them are only in ``--json``.

    Without columns there is no command: programs can ask for the rows (``kernel.ask``), people cannot.
    """


class KindTables(msgspec.Struct, frozen=True, kw_only=True):
    """Says of a list of tables among an engine's options that each names a kind, and has the options of that."""

    field: str
    """The option that is the list: ``listeners``."""
    key: str
    """The key of a table that names its kind: ``protocol``."""
    group: KindGroup[Any]
    """Where the kind is looked up."""


class EngineKind(Kind, frozen=True, kw_only=True):
    """An engine."""

    create: Callable[[EngineSetup], Engine]
    transports: tuple[str, ...] = ()
    """Transports that are this kind's alone: an engine with such an address is of it, whatever ``kind`` says, so that
    one line of a topology is enough to change a bridge's transport."""
    tables: tuple[Table, ...] = ()
    """What its engines can be inspected for, if they are ``Inspectable``."""
    kind_tables: tuple[KindTables, ...] = ()
    """Lists of tables among the options that are of kinds themselves; ``kernel check`` looks into those."""


class RouterKind(Kind, frozen=True, kw_only=True):
    """A router."""

    create: Callable[[Any], Router]
    """``create(options)``."""
    one_of_many: bool = False
    """It gives each message to one destination: another may take over what a dead one left behind."""
    by_content: bool = False
    """It looks at messages: even a single destination does not get everything."""


class ThreadKind(Kind, frozen=True, kw_only=True):
    """A kind of thread that hosts engines."""

    create: Callable[[ThreadSetup], EngineThread]
    """``create(setup)`` returns a thread that has not begun."""
    guest: bool = False
    """It lives in the application's own trio run, from the beginning to the end of ``async with kernel``: what ``create``
    returns is a ``GuestThread``."""


class ApiKind(Kind, frozen=True, kw_only=True):
    """A way in for application code."""

    create: Callable[[ApiSetup], Api]
    """``create(setup)`` returns what the application holds in its hand.  Called in the thread that opens it."""
    routed: bool = True
    """Its messages take routes: it can only be opened under a name that a plan or a route has."""


class DissectorKind(Kind, frozen=True, kw_only=True):
    """A protocol that ``kernel inspect`` can read in captured packets."""

    carries: Literal["stream", "datagram"] = "stream"
    """What it is found in: TCP, or datagrams of UDP and IP."""
    ports: frozenset[int] = frozenset()
    """Where it is usually spoken, by TCP or UDP."""
    ip_protocol: int | None = None
    """Its number in IP, if it has one."""
    recognises: Callable[[bytes], bool] = lambda first: False
    """``recognises(first)``: whether the first bytes of a sender in TCP (16, if there are as many), or a datagram of UDP,
    are beyond doubt of this protocol.  Called for any bytes at all; imports nothing heavy."""
    create: Callable[[], Any]
    """``create()`` makes a ``kernel.contracts.dissector.StreamDissector``, for each connection anew, or the one
    ``DatagramDissector``."""


class CommandKind(msgspec.Struct, frozen=True, kw_only=True):
    """A ``kernel NAME`` command."""

    name: str
    summary: str
    load: Callable[[], Any]
    """Returns the ``click.Command``; called only when the command is used or its help is wanted."""


AnyKind = TypeVar("AnyKind", bound=Kind | CommandKind)


class KindGroup(msgspec.Struct, Generic[AnyKind], frozen=True, kw_only=True):
    """A group of kinds: the ``register_*`` hook that returns them, their class and what they are called.

    A plugin that others may extend announces its groups with the hook ``register_kind_groups``.
    """

    hook: Callable[[], Iterable[AnyKind]]
    """A function marked with ``kernel.hookspec``, without arguments, named ``register_`` and the name of the group.
    Its docstring is its documentation; it is never called."""
    kind: type[AnyKind]
    noun: str
    """What errors call one of them: ``router``."""
    title: str
    """The heading of the group in a reference of options: ``Routers``."""
    listed_as: str = ""
    """What ``kernel plugins`` calls one of them, if not by its noun."""

    @property
    def name(self) -> str:
        """The name of the group: ``routers``."""
        return self.hook.__name__.removeprefix(REGISTER)


REGISTER = "register_"
"""How the hooks of groups begin."""


class KindsOf(Interface):
    """Looks up the kinds of a group."""

    def __call__(self, group: KindGroup[AnyKind]) -> Mapping[str, AnyKind]:
        """Return the kinds that installed plugins have registered, by name; none if nobody announces the group."""
        ...


def _no_kinds(group: KindGroup[AnyKind]) -> Mapping[str, AnyKind]:
    return MappingProxyType({})


class WalkKind(Kind, frozen=True, kw_only=True):
    """A message's way through the code, for ``kernel tour NAME``."""

    load: Callable[[], Walk]
    """Returns the walk; called only when it is followed."""


class BoundSockets(Interface):
    """Sockets that listen already (``kernel.hosting.listener.listen_on`` makes them)."""

    @property
    def sockets(self) -> Sequence[socket.socket]:
        """One for each address family."""
        ...

    @property
    def address(self) -> str:
        """Where they listen, with the port that the system chose."""
        ...

    def close(self) -> None:
        """Stop listening; harmless when done already.  Any thread."""
        ...


class EngineSetup(msgspec.Struct, frozen=True, kw_only=True):
    """All that ``EngineKind.create`` is told."""

    name: str
    """The engine's name in the topology."""
    options: Any
    """An instance of the kind's options class."""
    make_protocol: Callable[[str, dict[str, Any], Side], Any]
    """``make_protocol(kind_name, options, side)``: a new conversation of an installed protocol kind."""
    bound: BoundSockets | None = None
    """Where to listen, for an engine whose maker has bound its address beforehand.  The kernel closes them when the engine
    is removed; until then each life of the engine accepts on them."""
    system: System | None = None
    """The kernel that hosts the engine, for one that asks or changes it; None where an engine is hosted without one, in tests."""
    kinds: KindsOf = _no_kinds
    """``kinds(group)``: what plugins have registered for a group that this engine's plugin announces."""
