"""Front end: AMQP 0-9-1 clients of a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from plugins.engines.amqp.connection_host import ConnectionHost
from plugins.engines.amqp.options import AmqpListenerOptions, AmqpOptions
from plugins.engines.broker.public import (
    Accepted,
    BrokerEngine,
    ExchangeTypes,
    FrontEnd,
    StreamFrontEnd,
)
from plugins.protocols.amqp091.connection import ServerConnection
from plugins.protocols.amqp091.options import SUBPROTOCOLS, ServerOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernel.contracts.system import System
    from plugins.engines.broker.public import Codecs


def make_amqp_engine(
    name: str,
    options: AmqpOptions,
    exchange_types: ExchangeTypes | None = None,
    codecs: Callable[[], Codecs] | None = None,
    system: System | None = None,
) -> BrokerEngine:
    """Return a broker with one AMQP listener: the engine kind ``amqp``.

    ``codecs`` returns those of all front ends whose messages the store may have; AMQP's alone by default.
    ``system``: needed by a broker that has ``shards``.
    """

    def front_end(engine: BrokerEngine) -> FrontEnd:
        return make_front_end(engine, options.listener())

    return BrokerEngine(name, options, (front_end,), exchange_types, codecs or _own_codecs, system)


def _own_codecs() -> Codecs:
    from plugins.engines.broker.public import Codecs
    from plugins.protocols.amqp091.stored import StoredProperties

    return Codecs([StoredProperties()])


def make_front_end(engine: BrokerEngine, options: AmqpListenerOptions) -> StreamFrontEnd:
    """Return an AMQP listener of a broker."""
    return StreamFrontEnd(engine, options, "amqp", _Clients(engine, options).begin, subprotocols=SUBPROTOCOLS)


class _Clients:
    """Makes the clients of one listener."""

    def __init__(self, engine: BrokerEngine, options: AmqpListenerOptions) -> None:
        self._engine = engine
        self._options = options
        cluster_name = engine.options.cluster_name
        self._protocol_options = ServerOptions(
            channel_max=options.channel_max,
            frame_max=options.frame_max,
            heartbeat=options.heartbeat,
            handshake_timeout=options.handshake_seconds,
            max_body_size=options.max_body_bytes,
            # ANONYMOUS and, below, EXTERNAL are offered only where they can succeed.
            mechanisms=("PLAIN", "AMQPLAIN", *(("ANONYMOUS",) if options.anonymous else ())),
            product=options.product,
            version=options.product_version,
            # Federation links read the cluster's name: it is the upstream's in the trace that a message
            # carries.
            properties={
                "broker": "messaging-kernel",
                **({"cluster_name": cluster_name} if cluster_name else {}),
            },
        )

    def begin(self, accepted: Accepted) -> ConnectionHost:
        """Begin a conversation on a connection."""
        engine = self._engine
        options = self._protocol_options
        if accepted.certified is not None:
            options = msgspec.structs.replace(options, mechanisms=(*options.mechanisms, "EXTERNAL"))
        conversation = ServerConnection(options, engine.host.now())
        listener = self._options
        client = ConnectionHost(
            engine, accepted, conversation, anonymous=listener.anonymous, publish_rate=listener.publish_rate
        )
        client.start()
        return client
