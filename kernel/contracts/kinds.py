"""Kinds: what ``register_*`` hooks return.

A kind is a name, one line of summary, an options class (a ``msgspec.Struct`` whose fields have docstrings)
and a constructor, ``create``.  The kernel checks options and prints help from the options class.

All kinds are registered at each start, and a topology uses few of them.  So a kind says where its options
class is, and ``create`` imports what the engine consists of.

A plugin that other plugins extend defines a subclass of ``Kind`` and announces it with a ``KindGroup``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar
from typing import Protocol as Interface

import msgspec

from kernel.contracts.engine import Engine
from kernel.contracts.errors import PluginError
from kernel.contracts.protocol import Side as Side
from kernel.contracts.router import Router
from kernel.contracts.thread import EngineThread, ThreadSetup

if TYPE_CHECKING:
    import socket

    from kernel.contracts.api import Api, ApiSetup
    from kernel.contracts.assurance import Assurance
    from kernel.contracts.rehearsing import Rehearsal
    from kernel.contracts.system import System
    from kernel.contracts.walk import Walk
    from kernel.topology.plan import EnginePlan


class NoOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The options of a kind that has none."""


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """What all kinds have."""

    name: str
    """The name in topology files and addresses."""
    summary: str
    """One line for ``kernel plugins``."""
    options: type[msgspec.Struct] | str = NoOptions
    """The options class: a field for each key of the TOML section, with type and docstring.

    A text says where it is, as an entry point does: ``kernel_ticker.options:TickerOptions``.  It is imported
    when the options are first asked for."""

    def options_class(self) -> type[msgspec.Struct]:
        """Return the options class.

        Raises ``PluginError`` if it is not where ``options`` says.
        """
        found: object = self.options
        if isinstance(found, str):
            module, _, name = found.partition(":")
            try:
                found = getattr(import_module(module), name)
            except (ImportError, AttributeError) as error:
                raise PluginError(
                    f"the options of {self.name!r} are not at {self.options!r}: {error}"
                ) from error
        if isinstance(found, type) and issubclass(found, msgspec.Struct):
            return found
        raise PluginError(f"the options of {self.name!r} are {found!r}, not a msgspec.Struct class")


class ProtocolKind(Kind, frozen=True, kw_only=True):
    """A sans-I/O protocol over a stream of bytes (``kernel.contracts.protocol.StreamProtocol``)."""

    create: Callable[[Any, Side], Any]
    """``create(options, side)`` makes the protocol object of one conversation."""
    link_options: Mapping[str, Any] | None = None
    """The options with which it links processes of one kernel; None: it cannot.  One that can carries all
    that a route carries: envelopes, confirmations and subscriptions."""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A table for which engines of a kind can be inspected (``Inspectable.inspect`` returns its rows).

    ``kernel NAME`` prints the rows of all engines of a running system.  Several kinds may announce a table of
    the same name: it then has the columns of all of them.
    """

    name: str
    """The name: ``queues``.  A command of that name takes precedence over the table."""
    title: str
    """One line of help for ``kernel NAME``."""
    columns: tuple[str, ...] = ()
    """Keys of a row, in the order of the columns.  Other keys of a row are only in ``--json``.

    A table without columns has no command: only programs can ask for its rows (``kernel.ask``).
    """


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """Something of a kind's own that its engines can be asked with: ``--channel NAME`` of ``kernel tap``.

    Commands that ask any kind of engine have an option for it.  They and the kernel hand on what was typed,
    a text, and only the engine knows what it means.  Several kinds may announce the same.
    """

    name: str
    """The option without its dashes, and the key in the argument of the operation: ``channel``."""
    help: str
    """What is asked with it, for ``--help``."""
    metavar: str = "TEXT"
    """What stands for the value in the help."""
    default: str | None = None
    """What an engine of the kind is asked with if nobody says otherwise; None: without it."""
    field: Literal["", "exchange"] = ""
    """The field of the envelope that it is the value of; empty: of none.

    Routes can choose messages by this field.  So it can be given for any engine: of one that cannot be asked
    with it, the routes are."""

    def __post_init__(self) -> None:
        """Raises ``ValueError`` for a name that cannot be an option, or that commands have already."""
        if not re.fullmatch("[a-z][a-z0-9]*(-[a-z0-9]+)*", self.name):
            raise ValueError(f"{self.name!r} cannot be an option: small letters and digits, joined by '-'")
        if self.name in _NOT_OF_KINDS:
            raise ValueError(f"--{self.name} is an option of the command itself")


_NOT_OF_KINDS = frozenset(
    {
        *("contains", "control", "from", "header", "help", "json", "key", "limit", "only", "seconds", "to"),
        # Keys of the operations' arguments.
        *("headers", "keys", "most", "routed"),
    }
)


class KindTables(msgspec.Struct, frozen=True, kw_only=True):
    """Says that an option of an engine is a list of TOML tables, each of which has a kind and its options."""

    field: str
    """The name of the option: ``listeners``."""
    key: str
    """The key that has the name of the kind: ``protocol``."""
    group: KindGroup[Any]
    """Where the kind is looked up."""


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """Which routes an engine can have.  A route that it cannot have is a mistake of a topology."""

    takes: bool = True
    """Whether it takes messages from routes.  A source does not."""
    gives: bool = True
    """Whether it sends messages on routes.  A sink does not."""
    alone: bool = True
    """Whether it is of use without any route, as a broker is.  Otherwise ``kernel check`` warns."""
    why: str = ""
    """The option that decides, for complaints: ``mode = "send"``."""


def _any_flow(options: Any) -> Flow:
    return Flow()


class EngineKind(Kind, frozen=True, kw_only=True):
    """An engine."""

    create: Callable[[EngineSetup], Engine]
    transports: tuple[str, ...] = ()
    """Transports that only this kind has.  An engine with such an address is of this kind, whatever its
    ``kind`` says. So one line of a topology is enough to change the transport of a bridge."""
    tables: tuple[Table, ...] = ()
    """The tables of its engines, if they are ``Inspectable``."""
    operations: tuple[str, ...] = ()
    """Operations of its engines, if they are ``Operable``, that commands for any kind of engine look for:
    ``explain`` (``kernel.contracts.explaining``); ``peek``, and ``tap``, ``tap-read`` and ``tap-end``
    (``kernel.contracts.shown``)."""
    asked: Mapping[str, tuple[Asked, ...]] = {}
    """What its engines can be asked with, by operation: ``{"tap": (Asked(name="channel", ...),)}``."""
    kind_tables: tuple[KindTables, ...] = ()
    """Options that are lists of tables with kinds of their own; ``kernel check`` checks them, too."""
    live_options: tuple[str, ...] = ()
    """Options that a running engine takes without being started again.  Its engines are ``TakesOptions``."""
    assures: Callable[[Any], Assurance] | None = None
    """``assures(options)``: what its acknowledgements mean, for ``kernel prove``.  None:
    it states nothing."""
    mistakes: Callable[[Any, KindsOf], Iterable[tuple[tuple[str | int, ...], str]]] | None = None
    """``mistakes(options, kinds)``: the place in the options, and the complaint, for each mistake that the
    options class cannot find by itself, since it has no ``kinds(group)`` of other plugins.

    Called whenever a plan is read, before anything runs.  It must not wait.
    """
    mistakes_in_files: Callable[[Any, KindsOf], Iterable[tuple[str, str]]] | None = None
    """``mistakes_in_files(options, kinds)``: the option that names a file, and the complaint, for each
    mistake in a file that can be read.  ``NeedsFiles`` is about those that cannot.

    The complaint does not name the file, whose name may be a secret: it is shown in front.  Called by
    ``kernel check`` and ``kernel dry-run`` only: the file may be on the machine that runs the topology.
    """
    rehearse: Callable[[EnginePlan], Rehearsal] | None = None
    """``rehearse(plan)``: how it takes part in ``kernel rehearse``.  None: a stand-in takes its place."""
    flow: Callable[[Any], Flow] = _any_flow
    """``flow(options)``: which routes an engine with these options can have."""
    shards: Callable[[EnginePlan], Sequence[EnginePlan]] | None = None
    """``shards(plan)``: the engines that have parts of this one in other threads.  The kernel
    adds them to the plan.

    Called with any plan of the kind, also that of a shard, which has none; and before options are checked."""


class RouterKind(Kind, frozen=True, kw_only=True):
    """A router."""

    create: Callable[[Any], Router]
    """``create(options)``."""
    one_of_many: bool = False
    """It gives each message to one destination, so that another one may take over from a dead one."""
    by_content: bool = False
    """It looks at messages, so that even a single destination does not get everything."""
    by_name: bool = False
    """It looks at the names of ports.  Where a route leads into another process, it chooses there, since
    the ports are there."""


class ThreadKind(Kind, frozen=True, kw_only=True):
    """A kind of thread that hosts engines."""

    create: Callable[[ThreadSetup], EngineThread]
    """``create(setup)`` returns a thread that was not started yet."""
    guest: bool = False
    """It runs in the application's own trio run, inside ``async with kernel``; ``create`` returns a
    ``GuestThread``."""
    apart: bool = False
    """It is another process; ``create`` returns a ``ThreadApart``."""


class ApiKind(Kind, frozen=True, kw_only=True):
    """A way in for application code."""

    create: Callable[[ApiSetup], Api]
    """``create(setup)`` returns the object that the application uses.  Called in the thread that opens it."""
    assures: Callable[[Any], Assurance] | None = None
    """As for engines."""
    routed: bool = True
    """Whether its messages take routes.  If so, it can only be opened with a name that is in the plan or in a
    route."""


class DissectorKind(Kind, frozen=True, kw_only=True):
    """A protocol that ``kernel inspect`` can read in captured packets."""

    carries: Literal["stream", "datagram"] = "stream"
    """``stream``: over TCP; ``datagram``: over UDP or directly over IP."""
    ports: frozenset[int] = frozenset()
    """Its usual TCP or UDP ports."""
    ip_protocol: int | None = None
    """Its protocol number in IP, if it has one."""
    recognises: Callable[[bytes], bool] = lambda first: False
    """``recognises(first)``: whether bytes can only be of this protocol.  ``first`` is the first bytes of a
    sender in TCP (16, if there are so many), or a UDP datagram.  Called with any bytes; must not import
    anything slow."""
    create: Callable[[], Any]
    """``create()`` makes a ``kernel.contracts.dissector.StreamDissector`` for one connection, or the
    ``DatagramDissector`` for all datagrams."""


class CommandKind(msgspec.Struct, frozen=True, kw_only=True):
    """A ``kernel NAME`` command."""

    name: str
    summary: str
    load: Callable[[], Any]
    """Returns the ``click.Command``; called only when the command is used or its help is wanted."""


AnyKind = TypeVar("AnyKind", bound=Kind | CommandKind)


class KindGroup(msgspec.Struct, Generic[AnyKind], frozen=True, kw_only=True):
    """A group of kinds: the ``register_*`` hook that returns them, their class and their names in texts.

    A plugin that others may extend announces its groups with the hook ``register_kind_groups``.
    """

    hook: Callable[[], Iterable[AnyKind]]
    """A function marked with ``kernel.hookspec``, without arguments, named ``register_`` and the name of the
    group. Its docstring is its documentation; it is never called."""
    kind: type[AnyKind]
    noun: str
    """The word for one of them in errors: ``router``."""
    title: str
    """The heading of the group in a reference of options: ``Routers``."""
    listed_as: str = ""
    """The word for one of them in ``kernel plugins``, if it is not the noun."""

    @property
    def name(self) -> str:
        """The name of the group: ``routers``."""
        return self.hook.__name__.removeprefix(REGISTER)


REGISTER = "register_"
"""The beginning of the name of each hook that returns kinds."""


class KindsOf(Interface):
    """Looks up the kinds of a group."""

    def __call__(self, group: KindGroup[AnyKind]) -> Mapping[str, AnyKind]:
        """Return the kinds that installed plugins have registered, by name.

        None if no plugin announces the group.
        """
        ...


def _no_kinds(group: KindGroup[AnyKind]) -> Mapping[str, AnyKind]:
    return MappingProxyType({})


class WalkKind(Kind, frozen=True, kw_only=True):
    """The path of a message through the code, for ``kernel tour NAME``."""

    load: Callable[[], Walk]
    """Returns the walk; called only when it is followed."""


class BoundSockets(Interface):
    """Sockets that are listening already (``kernel.hosting.listener.listen_on`` makes them)."""

    @property
    def sockets(self) -> Sequence[socket.socket]:
        """One for each address family."""
        ...

    @property
    def address(self) -> str:
        """The address of the sockets, with the port that the system chose."""
        ...

    def close(self) -> None:
        """Stop listening; does nothing the second time.  Any thread."""
        ...


class EngineSetup(msgspec.Struct, frozen=True, kw_only=True):
    """The argument of ``EngineKind.create``."""

    name: str
    """The engine's name in the topology."""
    options: Any
    """An instance of the kind's options class."""
    make_protocol: Callable[[str, dict[str, Any], Side], Any]
    """``make_protocol(kind_name, options, side)``: a new conversation of an installed protocol kind."""
    bound: BoundSockets | None = None
    """Listening sockets, if the application has bound the engine's address in advance.  The engine accepts on
    them, again after each restart.  The kernel closes them when the engine is removed."""
    system: System | None = None
    """The kernel that hosts the engine.  None in tests that host an engine without a kernel."""
    kinds: KindsOf = _no_kinds
    """``kinds(group)``: the kinds that plugins have registered for a group of this engine's plugin."""
