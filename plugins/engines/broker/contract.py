"""What other plugins may bring to a broker, types of exchange and front ends, and what those are made of.

This contract belongs to the broker and not to the kernel: it uses bindings, queues and broker errors, which
the kernel does not know.  Every plugin module of a front end or an exchange type imports this module when
plugins are loaded, so it must be cheap to import.  What a front end needs at run time is in ``public.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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
    from plugins.engines.broker.host.tables import BROKER_TABLES, CLIENT_TABLES
    from plugins.engines.broker.sink import Sink
    from plugins.engines.broker.storage.envelopes import PropertiesCodec

__all__ = [
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
    "PreconditionFailed",
    "Sink",
    "listener_address",
]

_MODULES = {
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
    "Sink": "sink",
    "listener_address": "host.options",
}
"""Where the exported names are that this module does not define.  Each is imported when it is first used."""

if not TYPE_CHECKING:  # for a type checker, the imports above are enough, and exact

    def __getattr__(name: str) -> Any:
        """Import an exported name from the module that defines it (PEP 562)."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"plugins.engines.broker.{_MODULES[name]}"), name)
        globals()[name] = value
        return value


LooksAt: TypeAlias = Literal["key", "headers", "properties"]


class Matcher(Interface):
    """Holds the bindings of one exchange in the form in which they are looked up fastest.

    Used by the thread of the broker's engine only.
    """

    looks_at: ClassVar[LooksAt]
    """What ``match`` depends on.  If that is the key alone, its answers are cached by key."""

    def check(self, key: str, arguments: Mapping[str, Any]) -> None:
        """Refuse a binding that makes no sense, with a ``BrokerError``."""
        ...

    def add(self, binding: Binding) -> None:
        """Take a binding; the same one never comes twice."""
        ...

    def remove(self, binding: Binding) -> None:
        """Forget a binding that was added."""
        ...

    def match(self, key: str, headers: Mapping[str, Any]) -> Iterable[Destination]:
        """Return where a message goes; a destination may appear more than once.

        ``headers``: for one that looks at properties, all properties by name, ``headers`` among them.
        """
        ...


class ExchangeTypeKind(Kind, frozen=True, kw_only=True):
    """A type of exchange, for the brokers of the process; its name is what a client declares."""

    create: Callable[[Mapping[str, Any]], Matcher]
    """``create(arguments)`` makes what matches for one exchange from the arguments of its declaration, or
    refuses them with a ``BrokerError``."""


@hookspec
def register_exchange_types() -> Iterable[ExchangeTypeKind]:  # type: ignore[empty-body]
    """Return types of exchange.  Once, while plugins are loaded; main thread; nothing heavy."""


EXCHANGE_TYPES = KindGroup(
    hook=register_exchange_types, kind=ExchangeTypeKind, noun="exchange type", title="Exchange types"
)
"""Announced by the plugin of every engine that serves clients of a broker."""


class FrontEndSetup(msgspec.Struct, frozen=True, kw_only=True):
    """All that ``FrontEndKind.create`` is told."""

    engine: BrokerEngine
    """The broker.  What is made of it in ``start`` is not there yet: ``host``, ``broker``, ``feed``."""
    options: Any
    """An instance of the kind's options class."""


class FrontEndKind(Kind, frozen=True, kw_only=True):
    """A protocol that a broker serves; its name is what ``protocol`` of a listener says.

    The options class is a ``ListenerOptions``, mostly a subclass with options of the protocol.
    """

    create: Callable[[FrontEndSetup], FrontEnd]
    """Makes the front end of one listener.  ``ValueError``: the options cannot be used."""
    codec: Callable[[], PropertiesCodec] | None = None
    """``codec()``: how a store keeps the properties of its messages, if they are octets that only this
    protocol reads. A store has the codecs of all front ends that are installed, also of those that do not
    listen."""


@hookspec
def register_front_ends() -> Iterable[FrontEndKind]:  # type: ignore[empty-body]
    """Return front ends of brokers.  Once, while plugins are loaded; main thread; nothing heavy."""


FRONT_ENDS = KindGroup(
    hook=register_front_ends, kind=FrontEndKind, noun="front end", title="Front ends of a broker"
)
"""Announced by the plugin of the broker, and by every one that brings a front end of ours."""
