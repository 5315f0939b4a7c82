"""A place to which a socket of ØMQ connects, and connects again when the connection is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from kernel.contracts.engine import Port
from kernel.contracts.errors import ConnectionLost
from kernel.contracts.router import Outlet
from kernel.hosting.address import Address
from kernel.hosting.backoff import Backoff
from kernel.hosting.connecting import connect
from kernel.hosting.peer_patterns import PeerPatterns
from kernel.hosting.stream_host import StreamHost
from plugins.engines.zmq.options import handshakes_of, name_of

if TYPE_CHECKING:
    from plugins.engines.zmq.engine import ZmqEngine


class ConnectPlace:
    """Keeps a connection up.

    Its port lives as long as the place: messages wait in its pipes for a peer.  If ``engine.port_per_peer``
    is true, there is a port only while there is a peer, whose name it has; unless the identity of the peer
    was ``chosen`` here.
    """

    def __init__(self, engine: ZmqEngine, address: Address, chosen: bytes | None = None) -> None:
        self.chosen = chosen
        self._engine = engine
        self._address = address
        self._handshakes = handshakes_of(engine.options, address, listens=False)
        self.name = name_of(address)
        self.reconnects = 0
        self._backoff = Backoff(engine.options.reconnect)
        self._patterns = PeerPatterns()
        self.conversation: StreamHost | None = None
        self._opened_at: float | None = None
        self._reason = ""
        self._over = trio.Event()
        self._scope = trio.CancelScope()
        self._port: Port | None = None
        # With a chosen identity the name of the port is known before the peer is there, so messages to it can
        # wait, also at a ROUTER.
        self._port_per_peer = engine.port_per_peer and chosen is None
        if not self._port_per_peer:
            # latin-1: a character for each octet, as ``name_of_peer`` has it, so that an identity of any
            # octets can be turned back from the name.
            name = self.name if chosen is None else chosen.decode("latin-1")
            self._port = engine.host.port(f"{engine.name}/{name}", self)

    async def run(self) -> None:
        """Keep the connection up until cancelled, or until it has ended if it is not to be made again."""
        engine = self._engine
        # A scope of its own: ``disconnect`` ends this task while the nursery of the engine goes on.
        with self._scope:
            while True:
                await self._one_connection()
                if engine.options.again == "never":
                    engine.drop(self)
                    return
                wait = self._backoff.next_wait()
                engine.report("retrying", self.name, self._reason, wait)
                await trio.sleep(wait)

    def close(self) -> None:
        """End the connection for good.  What waits in the pipes goes to other peers, or is dropped."""
        self._scope.cancel()
        if self.conversation is not None:
            self.conversation.close("the place was removed")
        if self._port is not None:
            self._port.close()
            self._port = None

    def pending(self) -> bool:
        """Whether messages wait for a peer that is away.  Any thread."""
        port = self._port
        return port is not None and port.has_input()

    async def _one_connection(self) -> None:
        engine = self._engine
        try:
            # A failed attempt and a conversation that ended are treated alike: report, wait, try again.
            connected = await connect(self._address, engine.options.connect_timeout)
            wire = await self._handshakes.shake(connected)
        except ConnectionLost as error:
            self._reason = str(error)
            if engine.options.again == "never":
                # Otherwise nothing would say that it has ended.
                engine.report("disconnected", self.name, self._reason)
        else:
            self._over = trio.Event()
            # The event is made before: ``converse`` may end the conversation at once, and ``_on_end`` sets it
            # then.
            conversation = engine.converse(
                wire,
                self.name,
                "client",
                open_port=self._lend_port,
                on_open=self._on_open,
                on_end=self._on_end,
                # The port of one peer begins without subscriptions.
                patterns=None if self._port_per_peer else self._patterns,
                chosen=self.chosen,
            )
            if not conversation.ended:
                await self._over.wait()
            # None: it ended before messages could flow, so it counts as a failed attempt.
            if self._opened_at is not None:
                self._backoff.lasted(engine.host.now() - self._opened_at)
                self._opened_at = None
            self.reconnects += 1
            engine.report("disconnected", self.name, self._reason)

    def _lend_port(self, conversation: StreamHost) -> Port:
        self.conversation = conversation
        if self._port is None:
            name = f"{self._engine.name}/{conversation.peer_name}"
            self._port = self._engine.host.port(name, conversation)
        return self._port

    def _on_open(self) -> None:
        self._opened_at = self._engine.host.now()

    def _on_end(self, reason: str) -> None:
        self.conversation = None
        self._reason = reason
        if self._port_per_peer and self._port is not None:
            self._port.close()
            self._port = None
        self._over.set()

    # ------------------------------------------------------------------ the port's owner

    def on_output(self) -> None:
        """Messages wait in the pipes: send them if there is a peer."""
        if self.conversation is not None:
            self.conversation.on_output()

    def on_lease_asked(self, lease: Any) -> None:
        """Lend the connection, if there is one."""
        if self.conversation is not None:
            self.conversation.on_lease_asked(lease)

    def on_writable(self) -> None:
        """The pipes have room again."""
        if self.conversation is not None:
            self.conversation.on_writable()

    def on_confirmed(self, position: int) -> None:
        """Destinations have confirmed."""
        if self.conversation is not None:
            self.conversation.on_confirmed(position)

    def on_asked(self, verb: str, pattern: str, outlet: Outlet) -> None:
        """A reader has subscribed or unsubscribed."""
        if self.conversation is not None:
            self.conversation.on_asked(verb, pattern, outlet)

    def on_sync(self, hops: int) -> None:
        """Answer at once: ZMTP cannot ask a peer whether subscriptions are in effect."""
        if self._port is not None:
            self._port.synced(hops)

    def on_subscribed(self) -> None:
        """What the peer has subscribed to is in effect."""
        if self.conversation is not None:
            self.conversation.on_subscribed()
