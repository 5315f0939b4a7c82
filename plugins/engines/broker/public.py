"""What a front end uses at run time: the broker, its model, and the parts from which a session is made.

Import this module where clients are served.  A plugin module imports ``contract.py`` only, which is cheap.
``docs/write_a_front_end.md`` is the guide; decision 20 says who owns what.  All of this is for the broker's
thread alone, except for ``BrokerClient``, which belongs to a thread of the application.

* Listening: ``StreamFrontEnd`` makes a ``StreamClient`` of each ``Accepted`` connection.  ``FrontEnd`` and
  ``Client`` are what the broker expects of them, for a front end that is made otherwise.  ``ListenerOptions``
  and ``listener_address`` are its options; ``Bucket`` limits a rate.
* The broker: ``BrokerEngine`` has ``users`` (``Users``, ``Login``), the turn, and ``broker`` (``Broker``)
  with a ``VirtualHost`` for each name space.  This has each ``Exchange``, ``Queue`` and ``Binding``.  A
  ``Sink`` is bound as a queue is, and keeps no messages.  ``Store`` says what is safe on disk.  A
  ``StoredSet`` keeps each ``KeptMessage`` on disk under a number that the front end chooses.
* Publishing: a ``Publisher`` with ``Confirms``, which return each ``Outcome``; ``check_properties`` is for
  its ``check``.  ``ConfirmScheduler`` is for a session with several publishers (``Publishing``).  ``Feed``
  leads to the routes of the topology.
* Consuming: a ``Receiver`` numbers each ``Delivery`` of a ``Span`` of messages to a ``Consumer``.  It has
  what is ``Unacked``, as ranges (``UnackedRange``).  The ``Window`` of a connection bounds what is delivered.
* Besides: ``Transaction`` of something ``Transacting``, ``Timer`` (or anything ``Timed``), ``BindingIndex``,
  ``invent_name``.
* Refusals: each is a ``BrokerError``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from plugins.engines.broker.arguments import LONGEST_TIME, type_name
from plugins.engines.broker.binding import Binding, Destination
from plugins.engines.broker.binding_index import BindingIndex
from plugins.engines.broker.broker import Broker
from plugins.engines.broker.consumer import Consumer
from plugins.engines.broker.errors import (
    AccessRefused,
    BrokerError,
    CommandInvalid,
    NotAllowed,
    NotFound,
    NotImplementedHere,
    PreconditionFailed,
    ResourceLocked,
)
from plugins.engines.broker.exchange import Exchange
from plugins.engines.broker.front_end import Client, FrontEnd
from plugins.engines.broker.host.checking import check_properties
from plugins.engines.broker.host.codecs import codecs_of
from plugins.engines.broker.host.confirm_scheduler import ConfirmScheduler, Publishing
from plugins.engines.broker.host.confirms import Confirms, Outcome
from plugins.engines.broker.host.engine import BrokerEngine
from plugins.engines.broker.host.feed import Feed
from plugins.engines.broker.host.listening import Accepted, StreamFrontEnd
from plugins.engines.broker.host.options import BrokerOptions, ListenerOptions, listener_address
from plugins.engines.broker.host.publisher import Publisher
from plugins.engines.broker.host.rates import Bucket
from plugins.engines.broker.host.stream_client import GATHERED, StreamClient
from plugins.engines.broker.host.users import Login, Users
from plugins.engines.broker.matchers.kinds import ExchangeTypes
from plugins.engines.broker.names import invent_name
from plugins.engines.broker.queue import Queue
from plugins.engines.broker.receiver import Delivery, Receiver, Window
from plugins.engines.broker.routes import Route
from plugins.engines.broker.sink import Sink
from plugins.engines.broker.span import Span
from plugins.engines.broker.store import Store
from plugins.engines.broker.timer import Timed, Timer
from plugins.engines.broker.unacked import Unacked, UnackedRange
from plugins.engines.broker.virtual_host import VirtualHost

if TYPE_CHECKING:
    from plugins.engines.broker.host.transaction import Transacting, Transaction
    from plugins.engines.broker.local.client import BrokerClient
    from plugins.engines.broker.storage.envelopes import Codecs
    from plugins.engines.broker.stored_set import KeptMessage, StoredSet
else:
    # What only some brokers need: an in-process client, a store, transactions, retained messages.
    _LATER = {
        "BrokerClient": "local.client",
        "Codecs": "storage.envelopes",
        "KeptMessage": "stored_set",
        "StoredSet": "stored_set",
        "Transacting": "host.transaction",
        "Transaction": "host.transaction",
    }

    def __getattr__(name: str) -> Any:
        """Import it when it is asked for (PEP 562)."""
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"plugins.engines.broker.{_LATER[name]}"), name)


__all__ = [
    "GATHERED",
    "LONGEST_TIME",
    "Accepted",
    "AccessRefused",
    "Binding",
    "BindingIndex",
    "Broker",
    "BrokerClient",
    "BrokerEngine",
    "BrokerError",
    "BrokerOptions",
    "Bucket",
    "Client",
    "Codecs",
    "CommandInvalid",
    "ConfirmScheduler",
    "Confirms",
    "Consumer",
    "Delivery",
    "Destination",
    "Exchange",
    "ExchangeTypes",
    "Feed",
    "FrontEnd",
    "KeptMessage",
    "ListenerOptions",
    "Login",
    "NotAllowed",
    "NotFound",
    "NotImplementedHere",
    "Outcome",
    "PreconditionFailed",
    "Publisher",
    "Publishing",
    "Queue",
    "Receiver",
    "ResourceLocked",
    "Route",
    "Sink",
    "Span",
    "Store",
    "StoredSet",
    "StreamClient",
    "StreamFrontEnd",
    "Timed",
    "Timer",
    "Transacting",
    "Transaction",
    "Unacked",
    "UnackedRange",
    "Users",
    "VirtualHost",
    "Window",
    "check_properties",
    "codecs_of",
    "invent_name",
    "listener_address",
    "type_name",
]
