"""The dialling side of the stream engine.

It has one port as long as the engine exists: its pipes keep the messages that come while there is no
connection.
"""

from __future__ import annotations

from typing import Any

import trio

from kernel.contracts.engine import EngineEvent, Host, Port
from kernel.contracts.errors import ConnectionLost
from kernel.contracts.kinds import EngineSetup
from kernel.contracts.protocol import Syncing
from kernel.contracts.router import Outlet
from kernel.hosting.address import parse_address
from kernel.hosting.backoff import Backoff
from kernel.hosting.peer_patterns import PeerPatterns
from kernel.hosting.stream_host import StreamHost
from kernel.hosting.stream_statistics import StreamStatistics
from plugins.engines.stream.own_counters import OwnCounters
from plugins.engines.stream.sockets import connect


class StreamDialler:
    """Keeps a connection up: connects, and connects again when it is lost."""

    def __init__(self, setup: EngineSetup) -> None:
        self._name = setup.name
        self._options = setup.options
        self._address = parse_address(setup.options.address)
        self._make_protocol = setup.make_protocol
        self._counters = StreamStatistics()
        self._own_counters = OwnCounters()
        self._patterns = PeerPatterns()
        self._backoff = Backoff(setup.options.reconnect)
        self._reconnects = 0
        self._connection: StreamHost | None = None
        self._port: Port | None = None
        self._over = trio.Event()
        self._reason = ""
        self._opened_at: float | None = None
        # ``ConnectionFacts.shared``: what a protocol keeps from one connection of this engine to the next.
        self._shared: dict[str, Any] = {}
        self._handshakes = setup.options.handshakes(self._address, server_side=False)
        # Made and dropped: wrong options of the protocol fail now, and not at the first connection.
        probe = self._make_protocol(self._address.protocol, setup.options.protocol, "client")
        # Whether a peer may be able to tell when subscriptions are in effect.  Which one can, its greeting
        # tells.
        self._may_sync = setup.options.forward_subscriptions and isinstance(probe, Syncing)

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        """Keep a connection up until cancelled."""
        self._host = host
        # The port lives longer than any connection.  Messages that come while there is none wait in its
        # pipes.
        self._port = host.port(self._name, self)
        task_status.started(str(self._address))
        try:
            while True:
                await self._one_connection()
        finally:
            if self._connection is not None:
                self._connection.close("shut down")

    def pending(self) -> bool:
        """Whether something waits to be written to a connected peer."""
        return self._connection is not None and self._connection.pending()

    def statistics(self) -> dict[str, Any]:
        """Sums over all connections so far."""
        connection = self._connection
        return {
            **self._own_counters.sums([] if connection is None else [connection]),
            **self._counters.as_dict(),
            "connections": int(self._connection is not None),
            "reconnects": self._reconnects,
            "attempts": self._backoff.attempts,
        }

    def inspect(self, what: str) -> list[dict[str, Any]]:
        """Return a row for the connection, if there is one."""
        connection = self._connection
        return [connection.inspect()] if what == "connections" and connection is not None else []

    async def _one_connection(self) -> None:
        peer = str(self._address)
        try:
            # A failed attempt and a connection that ended are treated alike: report, wait, try again.
            wire = await self._handshakes.shake(await connect(self._address, self._options))
        except ConnectionLost as error:
            self._reason = str(error)
        else:
            self._over = trio.Event()
            self._connection = StreamHost(
                self._host,
                wire,
                self._make_protocol(self._address.protocol, self._options.protocol, "client"),
                peer=peer,
                counters=self._counters,
                open_port=self._lend_port,
                on_open=self._on_open,
                on_end=self._on_end,
                on_refused=self._on_refused,
                patterns=self._patterns,
                forward_subscriptions=self._options.forward_subscriptions,
                start_tls=self._handshakes.start_tls,
                shared=self._shared,
            )
            self._connection.start()
            await self._over.wait()
            # None: it ended before messages could flow, so it counts as a failed attempt.
            if self._opened_at is not None:
                # A connection that ends at once does not reset the wait.  Otherwise a peer that refuses each
                # one would be called without a pause.
                self._backoff.lasted(self._host.now() - self._opened_at)
                self._opened_at = None
            self._reconnects += 1
            self._host.report(
                EngineEvent(engine=self._name, what="disconnected", peer=peer, detail=self._reason)
            )
        wait = self._backoff.next_wait()
        self._host.report(
            EngineEvent(engine=self._name, what="retrying", peer=peer, detail=self._reason, next_try=wait)
        )
        await trio.sleep(wait)

    def _lend_port(self, _: StreamHost) -> Port:
        assert self._port is not None
        return self._port

    def _on_open(self) -> None:
        self._opened_at = self._host.now()
        self._host.report(EngineEvent(engine=self._name, what="connected", peer=str(self._address)))

    def _on_refused(self, why: str) -> None:
        self._host.report(EngineEvent(engine=self._name, what="refused", peer=str(self._address), detail=why))

    def _on_end(self, connection: StreamHost, reason: str) -> None:
        # The counters of this connection are kept, because the sums are over all connections so far.
        self._own_counters.add(connection)
        self._connection = None
        self._reason = reason
        self._over.set()

    # ------------------------------------------------------------------ the port's owner

    def on_output(self) -> None:
        """Messages wait in the pipes: send them if there is a connection."""
        if self._connection is not None:
            self._connection.on_output()

    def on_lease_asked(self, lease: Any) -> None:
        """Lend the connection, if there is one."""
        if self._connection is not None:
            self._connection.on_lease_asked(lease)

    def on_writable(self) -> None:
        """The pipes have room again."""
        if self._connection is not None:
            self._connection.on_writable()

    def on_asked(self, verb: str, pattern: str, outlet: Outlet) -> None:
        """A reader has subscribed or unsubscribed."""
        if self._connection is not None:
            self._connection.on_asked(verb, pattern, outlet)

    def on_sync(self, hops: int) -> None:
        """A reader wants to know whether what it has subscribed to is in effect at the peer."""
        if self._connection is not None:
            self._connection.on_sync(hops)
        elif not self._may_sync and self._port is not None:
            self._port.synced(hops)
        # Otherwise the next conversation asks: a peer that is away has nothing in effect.

    def on_subscribed(self) -> None:
        """What the peer has subscribed to is in effect."""
        if self._connection is not None:
            self._connection.on_subscribed()

    def on_confirmed(self, position: int) -> None:
        """Destinations have confirmed."""
        if self._connection is not None:
            self._connection.on_confirmed(position)
