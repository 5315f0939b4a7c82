"""Front end: STOMP clients of a broker."""

from __future__ import annotations

from plugins.engines.broker.public import Accepted, BrokerEngine, StreamFrontEnd
from plugins.engines.stomp.client import StompClient
from plugins.engines.stomp.options import StompListenerOptions
from plugins.protocols.stomp.versions import SUBPROTOCOLS


def make_front_end(engine: BrokerEngine, options: StompListenerOptions) -> StreamFrontEnd:
    """Return a STOMP listener of a broker."""

    def begin(accepted: Accepted) -> StompClient:
        client = StompClient(engine, accepted, options)
        client.start()
        return client

    return StreamFrontEnd(engine, options, "stomp", begin, subprotocols=SUBPROTOCOLS)
