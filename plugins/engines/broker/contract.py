"""What other plugins may add to a broker: types of exchange, and front ends, which serve a protocol.

A plugin module registers kinds: an ``ExchangeTypeKind`` with a class of matchers, or a ``FrontEndKind`` with
a function that makes front ends.  Plugin modules are imported whenever the kernel starts, also when no broker
is planned.  So this module is cheap to import, and they should import nothing else of the broker.  What
``FrontEndKind.create`` makes imports ``public.py``, which has everything that a front end uses at run time.

This contract belongs to the broker and not to the kernel: it uses bindings, queues and broker errors, which
the kernel does not know (decision 21).  ``docs/write_a_front_end.md`` is the guide to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias
from typing import Protocol as Interface

import msgspec

from kernel import hookspec
from kernel.contracts.kinds import Kind, KindGroup

if TYPE_CHECKING:
    from plugins.engines.broker.binding import Binding, Destination
    from plugins.engines.broker.errors import BrokerError, CommandInvalid, PreconditionFailed
    from plugins.engines.broker.front_end import Client, FrontEnd
    from plugins.engines.broker.host.engine import BrokerEngine
    from plugins.engines.broker.host.options import BrokerOptions, ListenerOptions, listener_address
    from plugins.engines.broker.host.tables import (
        BROKER_ASKED,
        BROKER_OPERATIONS,
        BROKER_TABLES,
        CLIENT_TABLES,
        broker_assures,
        broker_mistakes,
        broker_mistakes_in_files,
        engines_of_shards,
        rehearse_broker,
    )
    from plugins.engines.broker.sink import Sink
    from plugins.engines.broker.storage.envelopes import PropertiesCodec

__all__ = [
    "BROKER_ASKED",
    "BROKER_OPERATIONS",
    "BROKER_TABLES",
    "CLIENT_TABLES",
    "EXCHANGE_TYPES",
    "FRONT_ENDS",
    "Binding",
    "BrokerError",
    "BrokerOptions",
    "Client",
    "CommandInvalid",
    "Destination",
    "ExchangeTypeKind",
    "FrontEnd",
    "FrontEndKind",
    "FrontEndSetup",
    "ListenerOptions",
    "LooksAt",
    "Matcher",
    "MatchesMany",
    "PreconditionFailed",
    "PropertiesCodec",
    "Sink",
    "broker_assures",
    "broker_mistakes",
    "broker_mistakes_in_files",
    "engines_of_shards",
    "listener_address",
    "rehearse_broker",
]

_MODULES = {
    "BROKER_ASKED": "host.tables",
    "BROKER_OPERATIONS": "host.tables",
    "BROKER_TABLES": "host.tables",
    "CLIENT_TABLES": "host.tables",
    "Binding": "binding",
    "BrokerError": "errors",
    "BrokerOptions": "host.options",
    "Client": "front_end",
    "CommandInvalid": "errors",
    "Destination": "binding",
    "FrontEnd": "front_end",
    "ListenerOptions": "host.options",
    "PreconditionFailed": "errors",
    "PropertiesCodec": "storage.envelopes",
    "Sink": "sink",
    "broker_assures": "host.tables",
    "broker_mistakes": "host.tables",
    "broker_mistakes_in_files": "host.tables",
    "engines_of_shards": "host.tables",
    "rehearse_broker": "host.tables",
    "listener_address": "host.options",
}
"""Where the exported names are that this module does not define.  Each is imported when it is first used."""

# Type checkers use the imports above, which tell them the exact types.  If they saw this function, every
# attribute that this module does not have would be Any to them.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import an exported name from the module that defines it (PEP 562)."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"plugins.engines.broker.{_MODULES[name]}"), name)
        # The next access finds the name in the module, and this function is not called again.
        globals()[name] = value
        return value


LooksAt: TypeAlias = Literal["key", "headers", "properties"]
"""What an exchange type looks at: the routing key alone; also the headers; also any other property."""


class Matcher(Interface):
    """The bindings of one exchange, in the form in which a message finds its own fastest.

    Each exchange has one.  It is used by the broker's thread only, so it needs no lock.  Only ``check`` may
    raise.  ``plugins.engines.broker.testing`` has an exchange for tests of a matcher.
    """

    looks_at: ClassVar[LooksAt]
    """What ``match`` depends on.

    With ``key`` the broker caches answers by key, and asks again when a binding has changed.  So equal keys
    must get equal answers.  With ``headers`` or ``properties`` it caches answers by envelope only.
    """

    def check(self, key: str, arguments: Mapping[str, Any]) -> None:
        """Refuse a binding that makes no sense, with a ``BrokerError``.

        Called before ``add``, and also when the binding exists already.
        """
        ...

    def add(self, binding: Binding) -> None:
        """Add a binding that was checked.  It is never added twice."""
        ...

    def remove(self, binding: Binding) -> None:
        """Remove a binding that was added: the same object."""
        ...

    def match(self, key: str, headers: Mapping[str, Any]) -> Iterable[Destination]:
        """Return the destinations of the bindings that a message matches.

        A destination may appear more than once; it gets the message once.  ``headers`` are the headers of the
        message; if ``looks_at`` is ``properties``, they are all of its properties by name, and ``headers`` is
        one of these.  The values come from clients: expect any type.
        """
        ...


class MatchesMany(Matcher, Interface):
    """A matcher that looks at the key alone, and answers for many keys at once.

    For feeds in which every message has another key.
    """

    def match_all(self, keys: Sequence[str]) -> Sequence[tuple[Destination, ...]]:
        """Return what ``match`` returns, for each key.

        Equal answers should be the same object, if that is cheap.
        """
        ...


class ExchangeTypeKind(Kind, frozen=True, kw_only=True):
    """A type of exchange, for the brokers of the process; its name is what a client declares."""

    create: Callable[[Mapping[str, Any]], Matcher]
    """``create(arguments)`` makes the matcher of one exchange.

    The arguments are those of its declaration.  A ``BrokerError`` refuses them.  It is called at each
    declaration, also if the exchange exists, so it has to be cheap.
    """


@hookspec
def register_exchange_types() -> Iterable[ExchangeTypeKind]:  # type: ignore[empty-body]
    """Return types of exchange.

    Called once in the main thread, while plugins are loaded.  Import nothing heavy.
    """


EXCHANGE_TYPES = KindGroup(
    hook=register_exchange_types, kind=ExchangeTypeKind, noun="exchange type", title="Exchange types"
)
"""The group of kinds that this module's first hook registers.

A plugin that brings an engine with a broker announces it, with ``register_kind_groups``.  Several plugins may
announce the same group.
"""


class FrontEndSetup(msgspec.Struct, frozen=True, kw_only=True):
    """What ``FrontEndKind.create`` gets."""

    engine: BrokerEngine
    """The broker's engine.

    Its attributes ``host``, ``broker`` and ``feed`` are set when the engine starts, which is after ``create``
    and before ``FrontEnd.start``.
    """
    options: Any
    """The options of the listener, an instance of the kind's options class."""


class FrontEndKind(Kind, frozen=True, kw_only=True):
    """A protocol that a broker serves; its name is what ``protocol`` of a listener says.

    The options class is ``ListenerOptions``, or a subclass of it with the options of the protocol.
    """

    create: Callable[[FrontEndSetup], FrontEnd]
    """Makes the front end of one listener.  A ``ValueError`` says why the options cannot be used.

    A broker with two listeners of a protocol has two front ends.  ``BrokerEngine.shared`` is for what these
    have in common.
    """
    codec: Callable[[], PropertiesCodec] | None = None
    """``codec()`` makes what writes properties to disk and reads them, for a protocol with octets of its own.

    None: the properties of its messages are a mapping of plain values.  A store has the codecs of all front
    ends that are installed, also of those without a listener: their messages may be on disk from before.
    """


@hookspec
def register_front_ends() -> Iterable[FrontEndKind]:  # type: ignore[empty-body]
    """Return front ends of brokers.

    Called once in the main thread, while plugins are loaded.  Import nothing heavy.
    """


FRONT_ENDS = KindGroup(
    hook=register_front_ends, kind=FrontEndKind, noun="front end", title="Front ends of a broker"
)
"""The group of kinds that this module's second hook registers; announced like ``EXCHANGE_TYPES``."""
