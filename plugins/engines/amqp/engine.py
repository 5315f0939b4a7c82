"""Engine: an AMQP 0-9-1 server.  It listens, hosts its clients, keeps the broker, and has one port to the routes.

A turn is what one readable socket, one timer or one batch from the routes brings.  At its end the
broker settles, the routes get what was published, and each client that something is for is
written to once.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from random import SystemRandom
from typing import Any

import msgspec
import trio

from kernel.contracts.engine import EngineEvent, Host
from kernel.contracts.errors import ConnectionLost, KernelError
from kernel.hosting.address import SOCKET_TRANSPORTS, parse_address
from kernel.hosting.listener import Listener
from kernel.hosting.tls import handshake, server_context
from kernel.hosting.wire import PlainWire, TlsWire, Wire
from plugins.engines.amqp.alarm_watch import AlarmWatch, make_alarms
from plugins.engines.amqp.connection_host import ConnectionHost
from plugins.engines.amqp.definition_forms import read_definitions
from plugins.engines.amqp.definitions import declare_all
from plugins.engines.amqp.durability import open_store
from plugins.engines.amqp.feed import Feed
from plugins.engines.amqp.importing import Importer, import_file
from plugins.engines.amqp.inspection import inspect
from plugins.engines.amqp.kept_users import NAME, KeptUsers
from plugins.engines.amqp.options import AmqpOptions
from plugins.engines.amqp.origin import certified_name, is_on_this_machine
from plugins.engines.amqp.rates import Bucket
from plugins.engines.amqp.session import Session
from plugins.engines.amqp.users import Users
from plugins.engines.broker.alarms import held_in_queues
from plugins.engines.broker.broker import Broker
from plugins.engines.broker.matchers.kinds import ExchangeTypes
from plugins.engines.broker.storage.opening import OpenStore
from plugins.engines.broker.watches import Watches, place_of
from plugins.protocols.amqp091.connection import ServerConnection
from plugins.protocols.amqp091.options import ServerOptions


class AmqpEngine:
    """The server.  ``run`` is its life; all else is called by the thread that hosts it."""

    host: Host
    broker: Broker
    kept: OpenStore | None = None
    _kept_users: KeptUsers | None = None

    def __init__(self, name: str, options: AmqpOptions, exchange_types: ExchangeTypes | None = None) -> None:
        """``exchange_types``: those that plugins bring."""
        self.name = name
        self._exchange_types = exchange_types or {}
        self.options = options
        self.users = Users(options.users, options.anonymous)
        self._address = parse_address(options.address, SOCKET_TRANSPORTS, "amqp")
        self._tls = server_context(options.tls) if self._address.transport == "tls" else None
        self._shaking = 0
        """Connections whose TLS handshake is not over."""
        self._protocol_options = ServerOptions(
            channel_max=options.channel_max,
            frame_max=options.frame_max,
            heartbeat=options.heartbeat,
            handshake_timeout=options.handshake_seconds,
            max_body_size=options.max_body_bytes,
            mechanisms=("PLAIN", "AMQPLAIN", *(("ANONYMOUS",) if options.anonymous else ())),
            properties={"cluster_name": options.cluster_name} if options.cluster_name else {},
        )
        self._connections: dict[ConnectionHost, None] = {}
        self._busy: dict[ConnectionHost, None] = {}
        self._listener: Listener | None = None
        self._soon = False
        self._flushing = False
        """Whether the store is being told to write, which it may do at once."""
        self._disk_is_behind = False
        """Whether publishers wait because too much does for the disk."""
        self._armed: float | None = None
        self._accepted = self._refused = 0
        self._ended = {"messages_in": 0, "messages_out": 0, "bytes_in": 0, "bytes_out": 0}

    def __repr__(self) -> str:
        return f"<AmqpEngine {self.name}, {len(self._connections)} connections>"

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        """Serve until cancelled."""
        try:
            task_status.started(self.start(host))
            await trio.sleep_forever()
        finally:
            self.stop()

    def start(self, host: Host) -> str:
        """Make the broker, join the dispatcher, listen; return the address."""
        self.host = host
        now = host.now()
        rate = self.options.connections_per_second
        self._rate = Bucket(rate, now) if rate else None
        seed = SystemRandom().getrandbits(128)
        clock = time.time()
        self.kept = open_store(self.options, self.name, host, clock - now, self._on_stored)
        store = None if self.kept is None else self.kept.store
        self.broker = Broker(
            self.options.vhosts,
            seed=seed,
            store=store,
            now=now,
            clock=clock,
            exchange_types=self._exchange_types,
        )
        if self.kept is not None:
            self.kept.restore(self.broker, now)
            self._kept_users = KeptUsers(self.kept.directory)
            for complaint in Importer(self.broker, self.users, now).run(self._kept_users.read()).complaints:
                host.report(EngineEvent(engine=self.name, what="not restored", detail=f"{NAME}: {complaint}"))
        declare_all(self.options, self.broker, now)
        if self.options.definitions:
            for ignored in import_file(self.options.definitions, self.broker, self.users, now):
                host.report(EngineEvent(engine=self.name, what="ignored", detail=ignored))
        vhost = self.broker.vhost(self.options.vhost)
        self.feed = Feed(vhost, self.options.default_exchange, self._on_refused)
        self.feed.open(host.port(self.name, self))
        self._watches: Watches = host.rendezvous.setdefault(place_of(self.name), Watches())
        self._watches.open(vhost, self.options.cluster_name, host.post)
        alarms = make_alarms(self.options, self._held)
        self.alarm_watch = AlarmWatch(alarms, self.name, host, self._on_alarms_lifted)
        self._listener = Listener(host, self.name, self._address, self._on_accept)
        return self._listener.address

    def stop(self) -> None:
        """Hang up on everybody."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            self._watches.close(self.feed.vhost)
            self.alarm_watch.stop()
        for connection in list(self._connections):
            connection.hang_up()
        if self._armed is not None:
            self.host.set_timer(None, self._on_deadline, self)
        if self.kept is not None:
            self.kept.close(self.broker)
            self.kept = None

    def pending(self) -> bool:
        """Whether a client has something to read that is not written yet."""
        return any(connection.unwritten for connection in list(self._connections))

    def statistics(self) -> dict[str, Any]:
        """Counters of this moment; past connections count."""
        sums = dict(self._ended)
        for connection in list(self._connections):
            _add(sums, connection)
        kept = self.kept
        return {
            **sums,
            "connections": len(self._connections),
            "accepted": self._accepted,
            "refused": self._refused,
            "routed_out": self.feed.messages_out,
            "routed_in": self.feed.messages_in,
            "routed_in_refused": self.feed.messages_refused,
            **self.alarm_watch.alarms.statistics(),
            **({} if kept is None else {"store": kept.store.statistics()}),
            "vhosts": self.broker.statistics(),
        }

    def inspect(self, what: str) -> list[dict[str, Any]]:
        """Return a row for each queue, exchange, binding, connection or consumer."""
        return inspect(what, self.broker, self.users, self._connections)

    def operate(self, what: str, argument: Any) -> dict[str, Any]:
        """Do what an operator wants: ``import-definitions``."""
        if what != "import-definitions":
            raise KernelError(f"it cannot {what!r}; it can import-definitions")
        now = self.host.now()
        imported = Importer(self.broker, self.users, now).run(read_definitions(argument))
        self.finish_turn(now)
        complaints = list(imported.complaints)
        if self._kept_users is not None:
            try:
                self._kept_users.add(imported.made)
            except OSError as error:
                complaints.append(f"users and virtual hosts will not outlive this broker: {error}")
        return {"counts": imported.counts, "complaints": complaints, "ignored": imported.ignored}

    # Connections

    def _on_accept(self, connected: socket.socket, peer: str) -> None:
        full = len(self._connections) + self._shaking >= self.options.max_connections
        if full or (self._rate is not None and not self._rate.take_one(self.host.now())):
            self._refused += 1
            connected.close()
            return
        self._accepted += 1
        if connected.family in (socket.AF_INET, socket.AF_INET6):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is None:
            self._begin(PlainWire(connected), peer, loopback=is_on_this_machine(connected), certified=None)
        else:
            self._shaking += 1  # at once: others are accepted before the task begins
            self.host.nursery.start_soon(self._shake_hands, connected, peer, self._tls)

    async def _shake_hands(self, connected: socket.socket, peer: str, context: ssl.SSLContext) -> None:
        """TLS first; the conversation begins after it."""
        loopback = is_on_this_machine(connected)
        seconds = self.options.handshake_seconds
        try:
            wrapped = await handshake(connected, context, server_side=True, server_name=None, seconds=seconds)
        except ConnectionLost as error:
            self._refused += 1
            event = EngineEvent(engine=self.name, what="refused", peer=peer, detail=str(error))
            self.host.report(event)
            return
        finally:
            self._shaking -= 1
        if self._listener is None:  # stopped in the very turn in which the handshake was done
            wrapped.close()
            return
        self._begin(TlsWire(wrapped), peer, loopback=loopback, certified=certified_name(wrapped))

    def _begin(self, wire: Wire, peer: str, *, loopback: bool, certified: str | None) -> None:
        options = self._protocol_options
        if certified is not None:
            options = msgspec.structs.replace(options, mechanisms=(*options.mechanisms, "EXTERNAL"))
        conversation = ServerConnection(options, self.host.now())

        def make_session(connection: ServerConnection, on_busy: Callable[[], None]) -> Session:
            return Session(
                connection,
                self.broker,
                self.users,
                self.feed,
                loopback=loopback,
                certified=certified,
                on_busy=on_busy,
            )

        connection = ConnectionHost(self, wire, conversation, make_session, peer)
        self._connections[connection] = None
        connection.start()
        self.host.report(EngineEvent(engine=self.name, what="connected", peer=peer))

    def has_ended(self, connection: ConnectionHost, reason: str) -> None:
        """A connection is over."""
        self._connections.pop(connection, None)
        self._busy.pop(connection, None)
        _add(self._ended, connection)
        event = EngineEvent(engine=self.name, what="disconnected", peer=connection.peer, detail=reason)
        self.host.report(event)

    def _on_refused(self, detail: str) -> None:
        self.host.report(EngineEvent(engine=self.name, what="refused", detail=detail))

    # Turns

    def is_busy(self, connection: ConnectionHost) -> None:
        """There will be something to write to a connection at the end of this turn."""
        self._busy[connection] = None

    def finish_turn(self, now: float) -> None:
        """Settle the broker, feed the routes, write to the clients."""
        self.broker.settle_queues(now)
        self._watches.look()
        self.feed.flush()
        if self.alarm_watch.turn(now):
            self.broker.share_memory()
        low = self.alarm_watch.alarms.reason
        busy, self._busy = self._busy, {}
        for connection in busy:
            if connection.session.published:
                self._disk_is_behind = self._disk_is_behind or self.broker.store.full
                if not self.feed.going or self._disk_is_behind:
                    connection.hold_back()
                if low:
                    connection.block(low)
            connection.finish(now)
        # Last: the writer would fight for the interpreter's lock while clients are told.
        self._flushing = True
        self.broker.store.flush()
        self._flushing = False
        if self._busy or self.broker.touched:
            self.finish_soon()
        self._arm()

    def finish_soon(self) -> None:
        """A connection can take more, or has been lost: after the others had their turn."""
        if not self._soon and self._listener is not None:
            self._soon = True
            self.host.soon(self._on_soon)

    def _on_soon(self) -> None:
        self._soon = False
        self.finish_turn(self.host.now())

    def _on_stored(self) -> None:
        """More is safe: tell those who wait for it, and read those again who had to wait for the disk."""
        if self._disk_is_behind:
            self._go_on()
        if not self._flushing:  # otherwise the turn is not over yet, and looks itself whether there is more
            self.finish_turn(self.host.now())

    def _go_on(self) -> None:
        """The disk has caught up, or the routes have room: read again whom nothing else is in the way of."""
        was_behind, self._disk_is_behind = self._disk_is_behind, self.broker.store.full
        if self._disk_is_behind:
            return
        if was_behind:
            self.host.soon(self.on_output)
        if self.feed.going:
            for connection in list(self._connections):
                connection.go_on()

    def _held(self) -> int:
        """Octets of memory that messages take: those that wait, and those that are outstanding."""
        outstanding = [
            channel.receiver.ledger.estimated_size()
            for connection in self._connections
            for channel in connection.session.channels.values()
        ]
        return held_in_queues(self.broker) + sum(outstanding)

    def _on_alarms_lifted(self) -> None:
        """Read the publishers and the routes again."""
        for connection in self._connections:
            connection.unblock()
            self.is_busy(connection)
        self.host.soon(self.on_output)

    def _arm(self) -> None:
        deadline = self.broker.next_deadline()
        if deadline is not None and (self._armed is None or deadline < self._armed):
            self._armed = deadline
            self.host.set_timer(deadline, self._on_deadline, self)

    def _on_deadline(self) -> None:
        self._armed = None
        now = self.host.now()
        self.broker.handle_timeout(now)
        self.finish_turn(now)

    # The port's owner

    def on_output(self) -> None:
        """The routes have something for the broker."""
        now = self.host.now()
        self._disk_is_behind = self._disk_is_behind or self.broker.store.full
        waits = self._disk_is_behind or self.alarm_watch.alarms.raised
        if not waits and self.feed.receive(now):
            self.host.soon(self.on_output)
        self.finish_turn(now)

    def on_writable(self) -> None:
        """The routes have room again: read the publishers."""
        self.feed.going = True
        self._go_on()

    def on_confirmed(self, count: int) -> None:
        """The routes have confirmed: so can we."""
        self.feed.confirmed = count
        for connection in self._connections:
            if connection.session.confirming:
                self._busy[connection] = None
        self.finish_turn(self.host.now())


def _add(sums: dict[str, int], connection: ConnectionHost) -> None:
    sums["messages_in"] += connection.session.messages_in
    sums["messages_out"] += connection.session.messages_out
    sums["bytes_in"] += connection.bytes_in
    sums["bytes_out"] += connection.bytes_out
