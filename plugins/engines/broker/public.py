"""What a front end works with: the broker, its model, and the parts from which a session is made.

``docs/write_a_front_end.md`` has the whole of it.  Everything here is used by the broker's thread alone.
Plugin modules import ``contract.py`` only; this module is imported by what ``FrontEndKind.create`` makes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plugins.engines.broker.arguments import LONGEST_TIME
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
from plugins.engines.broker.host.codecs import codecs_of
from plugins.engines.broker.host.confirm_scheduler import ConfirmScheduler, Publishing
from plugins.engines.broker.host.confirms import Confirms, Outcome
from plugins.engines.broker.host.engine import BrokerEngine
from plugins.engines.broker.host.feed import Feed
from plugins.engines.broker.host.listening import Accepted, StreamFrontEnd
from plugins.engines.broker.host.options import BrokerOptions, ListenerOptions, listener_address
from plugins.engines.broker.host.publisher import Publisher
from plugins.engines.broker.host.rates import Bucket
from plugins.engines.broker.host.stream_client import StreamClient
from plugins.engines.broker.host.transaction import Transacting, Transaction
from plugins.engines.broker.host.users import Login, Users
from plugins.engines.broker.matchers.kinds import ExchangeTypes
from plugins.engines.broker.names import invent_name
from plugins.engines.broker.queue import Queue
from plugins.engines.broker.receiver import Delivery, Receiver, Window
from plugins.engines.broker.routes import Route
from plugins.engines.broker.sink import Sink
from plugins.engines.broker.span import Span
from plugins.engines.broker.storage.envelopes import Codecs
from plugins.engines.broker.store import Store
from plugins.engines.broker.timer import Timed, Timer
from plugins.engines.broker.unacked import Unacked, UnackedRange
from plugins.engines.broker.virtual_host import VirtualHost

if TYPE_CHECKING:
    from plugins.engines.broker.local.client import BrokerClient
else:

    def __getattr__(name: str) -> Any:
        """Import the in-process client when it is asked for: most brokers run without one (PEP 562)."""
        if name != "BrokerClient":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from plugins.engines.broker.local.client import BrokerClient

        return BrokerClient


__all__ = [
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
    "codecs_of",
    "invent_name",
    "listener_address",
]
