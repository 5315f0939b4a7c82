"""Kinds: what ``register_*`` hooks return.  From a kind come checked options, help and a constructor.

A kind is a name, one line of summary, an options class (a ``msgspec.Struct`` whose fields carry
docstrings) and ``create``, which alone imports what is heavy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from kernel.contracts.engine import Engine
from kernel.contracts.router import Router


class NoOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """For a kind that has nothing to set."""


class _Kind(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """How topology files and addresses call it."""
    summary: str
    """One line for ``kernel plugins``."""
    options: type[msgspec.Struct] = NoOptions
    """The options class: its field names, types and docstrings are the TOML section's."""


class ProtocolKind(_Kind, frozen=True, kw_only=True):
    """A sans-I/O protocol."""

    create: Callable[[Any, Side], Any]
    """``create(options, side)`` makes one conversation, for each connection anew."""
    carries: Literal["stream", "datagram"] = "stream"


class EngineKind(_Kind, frozen=True, kw_only=True):
    """An engine."""

    create: Callable[[EngineSetup], Engine]
    transports: tuple[str, ...] = ()
    """Transports that are this kind's alone: an engine with such an address is of it, whatever ``kind`` says, so that
    one line of a topology is enough to change a bridge's transport."""


class RouterKind(_Kind, frozen=True, kw_only=True):
    """A router."""

    create: Callable[[Any], Router]
    """``create(options)``."""
    one_of_many: bool = False
    """It gives each message to one destination: another may take over what a dead one left behind."""
    by_content: bool = False
    """It looks at messages: even a single destination does not get everything."""


class ThreadKind(_Kind, frozen=True, kw_only=True):
    """A kind of thread that hosts engines."""

    create: Callable[..., Any]
    """``create(name, dispatcher, report, options)`` returns a ``kernel.threads.engine_thread.EngineThread`` with ``start`` and ``join``."""
    guest: bool = False
    """It lives in the application's own trio run, from the beginning to the end of ``async with kernel``; has ``serve`` as well."""


class ApiKind(_Kind, frozen=True, kw_only=True):
    """A way in for application code."""

    create: Callable[..., Any]
    """``create(kernel, name, options)`` returns what the application holds in its hand."""


class ExchangeTypeKind(_Kind, frozen=True, kw_only=True):
    """A type of exchange, for the brokers of the process; its name is what a client declares."""

    create: Callable[[Mapping[str, Any]], Any]
    """``create(arguments)`` makes what matches for one exchange (``plugins.engines.broker.matchers.matcher.Matcher``) from
    the arguments of its declaration, or refuses them with a ``plugins.engines.broker.errors.BrokerError``."""


class JobKind(_Kind, frozen=True, kw_only=True):
    """A job of ``kernel pipeline``: what is asked of a kept feed."""

    create: Callable[[Any], Callable[[Any], Any]]
    """``create(options)`` returns what is called with the feed, a Spark DataFrame, and returns a report
    (``plugins.apis.spark.report.findings.Report``), or of a job that ``streams`` a DataFrame of messages to be sent."""
    streams: bool = False
    """It goes on while the feed does, and sends what it finds out."""


class DissectorKind(_Kind, frozen=True, kw_only=True):
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


Side = Literal["client", "server"]


class EngineSetup(msgspec.Struct, frozen=True, kw_only=True):
    """All that ``EngineKind.create`` is told."""

    name: str
    """The engine's name in the topology."""
    options: Any
    """An instance of the kind's options class."""
    make_protocol: Callable[[str, dict[str, Any], Side], Any]
    """``make_protocol(kind_name, options, side)``: a new conversation of an installed protocol kind."""
    exchange_types: Mapping[str, ExchangeTypeKind] = MappingProxyType({})
    """The types of exchange that plugins have brought, by name; for a broker to offer besides its own."""
