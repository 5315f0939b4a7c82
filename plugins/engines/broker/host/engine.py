"""Engine: a broker and its front ends.  It keeps the broker, ends its turns, and has one port to the routes.

Turns
    A turn is what one readable socket, one timer or one batch from the routes brings.  Whoever begins it
    calls operations of the broker and marks clients as busy; nothing is written meanwhile.  ``finish_turn``
    ends it: queues deliver, the routes get what was published, each busy client is written to once, and the
    store begins to write.  So a read that brings a thousand messages costs one write for each consumer, and
    one group on the disk.

    Short reads of several sockets that are ready together are one turn (``finish_read``).

    Turns never nest.  What the end of a turn makes necessary is put off with ``finish_soon``: nested, each
    end would deliver the next window's worth to a client that takes everything, nobody else would have a
    turn, and the stack would grow until the interpreter gives up.

Who waits for what
    Publishers wait (``hold_back``) while a route that blocks is full (``feed.going``) or the disk is behind
    (``_disk_is_behind``), and (``block``) while an alarm is raised.  Consumers never wait for these: they are
    what makes room.  The batches of the routes wait as publishers do: ``on_output`` leaves them in their
    pipes.

    The two reasons of ``hold_back`` are lifted by different events, the port's ``on_writable`` and the
    store's ``_on_stored``.  Either may come last, so both call ``_go_on``, which looks at both reasons.

Threads
    All of it runs in the thread that hosts the engine.  The store's writer thread calls nothing here: its
    results are posted to this thread (``_on_stored``).  ``statistics`` may be called from any thread, and
    therefore copies what it iterates over.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Any, TypeAlias

import trio

from kernel.contracts.engine import EngineEvent, Host
from kernel.contracts.errors import KernelError, LoginRefused
from kernel.hosting.lazy_timer import LazyTimer
from plugins.engines.broker.alarms import bytes_in_queues
from plugins.engines.broker.broker import Broker
from plugins.engines.broker.front_end import Client, FrontEnd
from plugins.engines.broker.host.alarm_watch import AlarmWatch, make_alarms
from plugins.engines.broker.host.clock_watch import ClockWatch
from plugins.engines.broker.host.definitions import declare_all
from plugins.engines.broker.host.durability import USERS_FILE, USERS_KNOWN, open_store
from plugins.engines.broker.host.feed import Feed
from plugins.engines.broker.host.inspection import inspect
from plugins.engines.broker.host.listening import StreamFrontEnd, share_ports
from plugins.engines.broker.host.options import BrokerOptions
from plugins.engines.broker.host.running_broker import RunningBroker, running_broker_key
from plugins.engines.broker.host.tables import ADMINISTRATIVE_OPERATIONS, BROKER_OPERATIONS
from plugins.engines.broker.host.users import Users
from plugins.engines.broker.matchers.kinds import ExchangeTypes
from plugins.engines.broker.topology_observers import TopologyObservers, topology_observers_key

if TYPE_CHECKING:
    import socket

    from kernel.contracts.system import System
    from kernel.hosting.appending import Disk
    from plugins.engines.broker.host.importing import Imported, Importer
    from plugins.engines.broker.host.shards import Shards
    from plugins.engines.broker.host.users_file import UsersFile
    from plugins.engines.broker.policies import Policy
    from plugins.engines.broker.storage.envelopes import Codecs
    from plugins.engines.broker.storage.opening import OpenStore

MakeFrontEnd: TypeAlias = "Callable[[BrokerEngine], FrontEnd]"


READS_A_TURN = 16
"""Reads that one turn has at most, so that who was read first need not wait for all others."""
_LOGIN_REPORT_PERIOD = 1.0
"""Seconds between two reports of failed logins: a client that tries passwords must not fill the log."""
_LONGEST_NAME = 100
"""Characters of a name that is reported: a stranger has chosen it."""


class BrokerEngine:
    """The broker as its front ends see it.

    The supervisor calls ``run``; everything else is called in the thread that hosts the engine.
    """

    broker_type: type[Broker] = Broker
    """What its model is.  An engine for tests has another one (``faults/``)."""
    disk: Disk | None = None
    """The system calls with which its store writes; None: those of the operating system."""
    admits_connections = True
    """Whether its front ends accept connections."""
    host: Host
    broker: Broker
    kept: OpenStore | None = None
    _timer: LazyTimer | None = None
    _running_broker: RunningBroker | None = None

    def __init__(
        self,
        name: str,
        options: BrokerOptions,
        front_ends: Sequence[MakeFrontEnd] = (),
        exchange_types: ExchangeTypes | None = None,
        codecs: Callable[[], Codecs] | None = None,
        system: System | None = None,
    ) -> None:
        """``front_ends`` make a front end each; ``exchange_types``: those that plugins bring.

        ``codecs`` returns those of all front ends whose messages the store may have, also of those that do
        not listen now.  It is called if there is a store.
        ``system``: needed by a broker that has ``shards``.
        """
        self.name = name
        self.options = options.of_this_shard()
        self.shards: Shards | None = None
        """The other parts of this broker, if it is the first of several."""
        if options.shards and not options.shard and system is not None:
            # Imported here and not above: most brokers are in one thread.
            from plugins.engines.broker.host.shards import Shards

            self.shards = Shards(self, system)
        self.users = Users(options.users)
        self.clients: dict[Client, Callable[[], None]] = {}
        """All clients of all front ends, and what to call when one has ended."""
        self.shared: dict[str, Any] = {}
        """What several front ends of this broker share, by a key that begins with the name of their protocol.

        The sessions of a protocol are an example: a client may come back over another listener.  A broker
        that is started again has a new engine, and so an empty dictionary.
        """
        self.running = False
        """From ``start`` to ``stop``: no client may begin outside of it."""
        self.started_at = 0.0
        """When it was started, on the clock of its host."""
        self._exchange_types = exchange_types or {}
        self._codecs = codecs
        self.front_ends = [make(self) for make in front_ends]
        share_ports(self.front_ends)
        self.busy: dict[Client, None] = {}
        """The clients whose ``finish`` will be called at the end of this turn.  A dictionary as a set that
        keeps its order: they are written to in the order in which they became busy."""
        self._soon = False
        """Whether another turn is put off already (``finish_soon``)."""
        self._read_posted = False
        """Whether ``_on_reads`` will be called."""
        self._reads = 0
        """How many reads the present turn has had whose end was put off (``finish_read``)."""
        self._flushing = False
        """True during ``store.flush``, which may write at once and then calls ``_on_stored``."""
        self._disk_is_behind = False
        """Whether publishers wait because too many bytes wait for the disk."""
        self._logins_refused = 0
        self._logins_reported = 0
        """How many of them were refused when the last was reported."""
        self._next_login_report = 0.0
        self._ended = {"messages_in": 0, "messages_out": 0, "bytes_in": 0, "bytes_out": 0}

    def __repr__(self) -> str:
        return f"<BrokerEngine {self.name}, {len(self.clients)} connections>"

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        """Serve until cancelled."""
        try:
            task_status.started(self.start(host))
            await trio.sleep_forever()
        finally:
            self.stop()

    def start(self, host: Host) -> str:
        """Make the broker, join the dispatcher, listen; return the addresses."""
        self._open(host)
        self.running = True
        addresses = [front_end.start() for front_end in self.front_ends]
        # What was restored may expire before anybody comes and makes a turn.
        if self._timer is not None:
            self._timer.arm(self.broker.next_deadline())
        # Nor does a monitor wait for the first turn, and no byte of memory or disk would alarm it.
        self.check_resources(host.now())
        running: RunningBroker = host.rendezvous.setdefault(running_broker_key(self.name), RunningBroker())
        # Last: an application that waits for the broker, in its own thread, goes on at once.
        running.set(self)
        self._running_broker = running
        return ", ".join(filter(None, addresses))

    def _open(self, host: Host) -> None:
        self.host = host
        self._timer = LazyTimer(host, self._on_deadline)
        now = self.started_at = host.now()
        # Of the names that the broker invents, which must not repeat those of an earlier run.
        seed = SystemRandom().getrandbits(128)
        time_of_day = self.time_of_day()
        # Before the store is open: one that was opened and not restored must not be closed
        # as if it were empty.
        imported = self._imported_policies()
        self.kept = open_store(
            self.options, self.name, host, self._codecs, now, time_of_day, self._on_stored, self.disk
        )
        store = None if self.kept is None else self.kept.store
        self.broker = self.broker_type(
            self._own_vhosts(),
            seed=seed,
            store=store,
            now=now,
            clock=time_of_day,
            exchange_types=self._exchange_types,
            report=lambda what, detail: host.report(EngineEvent(engine=self.name, what=what, detail=detail)),
        )
        # First, so that the queues that are restored have their policies from the beginning.
        self._take_policies()
        for policy in imported:
            self.broker.policies.add_imported(policy)
        # The exchanges that every virtual host has are there already.
        self.broker.apply_policies(now)
        if self.kept is not None:
            self.kept.restore(self.broker, now)
            self._restore_users(self.kept, now)
        # After the restore, so that a queue of the options that exists already keeps its messages.  One that
        # differs from what was stored is refused, and the engine does not start.
        declare_all(self.options, self.broker, now)
        if self.options.definitions:
            # Few brokers import definitions, so the code for it is not imported at the start of each.
            from plugins.engines.broker.host.importing import import_file

            for ignored in import_file(
                self.options.definitions, self.broker, self.users, now, self.options.has
            ):
                host.report(EngineEvent(engine=self.name, what="ignored", detail=ignored))
        vhost = self.broker.vhost(self.options.vhost)
        self.feed = Feed(vhost, self.options.default_exchange, self._on_refused)
        self.feed.open(host.port(self.name, self))
        self._observers: TopologyObservers = host.rendezvous.setdefault(
            topology_observers_key(self.name), TopologyObservers()
        )
        self._observers.open(vhost, self.options.cluster_name, host.post)
        alarms = make_alarms(self.options, self._held)
        self.alarm_watch = AlarmWatch(
            alarms, self.name, host, self._on_alarms_lifted, self._on_memory_stays_low
        )
        stored = None if self.kept is None else self.kept.clock
        self._clock_watch = ClockWatch(self.broker, stored, host, self.time_of_day)

    def time_of_day(self) -> float:
        """Return the seconds since 1970 UTC.  An engine for tests has another clock."""
        return time.time()

    def _own_vhosts(self) -> Sequence[str]:
        return [vhost for vhost in self.options.vhosts if self.options.has(vhost)]

    def has_vhost(self, name: str) -> bool:
        """Whether clients can open a virtual host here, be it in this shard or in another one."""
        return name in self.broker.vhosts or (self.shards is not None and self.shards.of(name) is not None)

    def _take_policies(self) -> None:
        policies = self.options.policies
        self.broker.policies.take_options([each.as_policy(name) for name, each in policies.items()])

    def _imported_policies(self) -> list[Policy]:
        directory = Path(self.options.data_dir)
        if not self.options.data_dir or not os.path.lexists(directory / USERS_FILE):
            return []
        from plugins.engines.broker.host.importing import as_policy
        from plugins.engines.broker.host.users_file import UsersFile
        from plugins.engines.broker.policies import check_policy

        policies = [as_policy(definition) for definition in UsersFile(directory).read().policies]
        for policy in policies:
            try:
                check_policy(policy)
            except ValueError as error:
                raise KernelError(f"{directory / USERS_FILE}: policy {policy.name!r}: {error}") from None
        return policies

    def _restore_users(self, kept: OpenStore, now: float) -> None:
        """Import again the users, permissions and virtual hosts that the users file has."""
        # Few brokers have imported any, so the code for it is not imported at the start of each.
        if not any(os.path.lexists(kept.directory / name) for name in (USERS_FILE, USERS_KNOWN)):
            return
        from plugins.engines.broker.host.importing import Importer
        from plugins.engines.broker.host.users_file import UsersFile

        file = UsersFile(kept.directory)
        if file.is_missing():
            detail = f"{USERS_FILE}: it is missing; import the users and their permissions again"
            self.host.report(EngineEvent(engine=self.name, what="not restored", detail=detail))
        for complaint in Importer(self.broker, self.users, now, self.options.has).run(file.read()).complaints:
            event = EngineEvent(engine=self.name, what="not restored", detail=f"{USERS_FILE}: {complaint}")
            self.host.report(event)

    def stop(self) -> None:
        """Stop listening, close all clients, close the store."""
        if self.running:
            self.running = False
            if self._running_broker is not None:
                self._running_broker.clear(self)
            for front_end in self.front_ends:
                front_end.stop()
            if self.shards is not None:
                self.shards.close()
            self._observers.close(self.feed.vhost)
            self.alarm_watch.stop()
            self._clock_watch.stop()
        # A copy: each client removes itself in ``has_ended``.
        for client in list(self.clients):
            client.hang_up("the broker is shut down")
        if self._timer is not None:
            self._timer.cancel()
        # After the clients: what they give back is noted in the log as delivered before.
        if self.kept is not None:
            self.kept.close(self.broker)
            self.kept = None

    def check_resources(self, now: float) -> None:
        """Check the alarms, and do what else is done as seldom."""
        self.alarm_watch.check(now)
        self._clock_watch.look(now)
        self.broker.share_memory()

    def pending(self) -> bool:
        """Whether a client has something to read that is not written yet."""
        return any(client.unwritten for client in list(self.clients))

    def messages_out(self) -> int:
        """Return how many messages clients have got so far."""
        return self._ended["messages_out"] + sum(client.messages_out for client in self.clients)

    def statistics(self) -> dict[str, Any]:
        """Counters of this moment; past connections count."""
        sums = dict(self._ended)
        for client in list(self.clients):
            _add(sums, client)
        listeners = [front_end.statistics() for front_end in self.front_ends]
        kept = self.kept
        return {
            **sums,
            "connections": len(self.clients),
            "accepted": sum(each["accepted"] for each in listeners),
            "refused": sum(each["refused"] for each in listeners),
            "logins_refused": self._logins_refused,
            "routed_out": self.feed.messages_out,
            "routed_in": self.feed.messages_in,
            "routed_in_refused": self.feed.messages_refused,
            **self.alarm_watch.alarms.statistics(),
            **({} if kept is None else {"store": kept.store.statistics()}),
            "vhosts": self.broker.statistics(),
        }

    def inspect(self, what: str) -> list[dict[str, Any]]:
        """Return a row for each queue, exchange, binding, connection or consumer."""
        rows = inspect(what, self.broker, self.users, [*self.clients, *self.front_ends])
        if not self.options.shards:
            return rows
        from plugins.engines.broker.host.shards import of_one_broker

        return of_one_broker(self.name, self.options, what, rows)

    def take_over(self, what: Mapping[str, Any], connected: socket.socket) -> None:
        """``TakesOver``: go on with a client that the first shard has accepted."""
        front_end = self.front_ends[what["front_end"]] if self.running else None
        if not isinstance(front_end, StreamFrontEnd):
            raise KernelError("there is no such listener here")
        front_end.go_on(what, connected)

    def operate(self, what: str, argument: Any) -> Any:
        """Do what an operator wants.

        ``import-definitions``: the argument is the document; a long one takes several turns.
        ``delete-definitions``: it has lists ``users``, ``permissions``, ``topic_permissions`` and
        ``policies`` with names.  ``close-connection``: it is the name of the connection, as ``inspect`` has
        it, or a mapping with ``name`` and a ``reason`` that the client is told.  ``authenticate``: whether a
        user of this broker may use another engine; it is a ``Login`` as a mapping
        (``kernel.contracts.protocol``).  ``explain``, ``peek`` and others: see ``looking.py``.  ``status``
        and ``browse``: see ``status.py`` and ``browsing.py``.  ``declare-queue``, ``publish`` and others,
        with the permissions of a user: see ``administration.py``.
        """
        passed_on = None if self.shards is None else self.shards.passed_on(what, argument)
        return self.operate_here(what, argument) if passed_on is None else passed_on

    def operate_here(self, what: str, argument: Any) -> Any:
        """Do it in this shard."""
        if what in BROKER_OPERATIONS:
            # Few brokers are looked at, so the code for it is not imported at the start of each.
            from plugins.engines.broker.host.looking import LOOKING

            return LOOKING[what](self, argument)
        if what in ADMINISTRATIVE_OPERATIONS:
            from plugins.engines.broker.host.administration import administer

            return administer(self, what, argument)
        operations: dict[str, Callable[[Any], Any]] = {
            "authenticate": self._authenticate,
            "browse": self._browse,
            "close-connection": self._close_connection,
            "delete-definitions": self._delete_definitions,
            "import-definitions": self._import_definitions,
            "status": self._status,
        }
        do = operations.get(what)
        if do is None:
            known = sorted((*operations, *ADMINISTRATIVE_OPERATIONS, *BROKER_OPERATIONS))
            raise KernelError(f"it cannot {what!r}; it can {', '.join(known)}")
        return do(argument)

    def _browse(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        from plugins.engines.broker.host.browsing import browse

        return browse(self, asked)

    def _status(self, _: object) -> dict[str, Any]:
        from plugins.engines.broker.host.status import status

        return status(self)

    def _import_definitions(self, document: Any) -> Any:
        from plugins.engines.broker.host.definition_forms import read_definitions
        from plugins.engines.broker.host.importing import Importer

        importer = Importer(self.broker, self.users, self.host.now(), self.options.has)
        steps = self._import(importer, importer.steps(read_definitions(document)))
        try:
            next(steps)
        except StopIteration as done:
            # It was little.
            imported: dict[str, Any] = done.value
            return imported
        return steps

    def _import(
        self, importer: Importer, steps: Generator[None, None, Imported]
    ) -> Generator[None, None, dict[str, Any]]:
        imported = None
        while imported is None:
            try:
                next(steps)
            except StopIteration as done:
                imported = done.value
            # Each piece is a turn: what it declared has to be written to the disk.
            self.finish_turn(importer.now)
            if imported is None:
                yield
                importer.now = self.host.now()
        complaints = list(imported.complaints)
        outlives = self._note_in_users_file(lambda file: file.add(imported.made), complaints)
        return {
            "counts": imported.counts,
            "complaints": complaints,
            "ignored": imported.ignored,
            "outlives": outlives,
        }

    def _delete_definitions(self, document: Any) -> dict[str, Any]:
        from plugins.engines.broker.host.definition_forms import read_deletions
        from plugins.engines.broker.host.deleting import Deleter

        now = self.host.now()
        deleter = Deleter(self.broker, self.users, self.options.users, now, self.options.has)
        deleted = deleter.run(read_deletions(document))
        self._end_connections_of(deleted.gone)
        self.finish_turn(now)
        complaints = list(deleted.complaints)
        outlives = self._note_in_users_file(lambda file: file.remove(deleted.done), complaints)
        return {"counts": deleted.counts, "complaints": complaints, "outlives": outlives}

    def _note_in_users_file(self, note: Callable[[UsersFile], None], complaints: list[str]) -> bool:
        """Note a change for the next start; return whether that is possible at all."""
        if self.kept is None:
            return False
        from plugins.engines.broker.host.users_file import UsersFile

        try:
            note(UsersFile(self.kept.directory))
        except (OSError, KernelError) as error:
            complaints.append(f"users, virtual hosts and policies will not outlive this broker: {error}")
        return True

    def take_options(self, options: BrokerOptions) -> None:
        """The users or policies of the topology file have changed.

        Connections stay, but for those of users who are gone, as in RabbitMQ.  Whether a user may do
        something is looked up each time, so that changed permissions count at once.
        """
        gone = self.users.change(self.options.users, options.users)
        self.options = options.of_this_shard()
        self._take_policies()
        self.broker.apply_policies(self.host.now())
        self.broker.forget_permissions()
        self._end_connections_of(gone)
        self.finish_turn(self.host.now())

    def _end_connections_of(self, gone: set[str]) -> None:
        """Close the connections of users who do not exist any more, as in RabbitMQ."""
        for client in list(self.clients) if gone else ():
            users = {row.get("user") for row in client.inspect("connections")}
            for name in users & gone:
                # RabbitMQ's words.
                client.hang_up(f"user '{name}' is deleted")

    def _authenticate(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Check a password that another engine was given; return the user's name, tags and virtual hosts.

        ``facts["loopback"]`` says whether the client is on this machine.  It counts as being elsewhere if the
        engine does not know.
        """
        name, mechanism = str(asked.get("user", "")), str(asked.get("mechanism", ""))
        password = bytes(asked.get("secret", b"")).decode("utf-8", "surrogateescape")
        loopback = asked.get("facts", {}).get("loopback") is True
        login = None
        if mechanism == "PLAIN":
            login = self.users.log_in_by_password(name, password, loopback=loopback)
        if login is None:
            self.login_refused(str(asked.get("peer", "")), name, mechanism, self.host.now())
            # Without the reason, as for this broker's own clients.
            raise LoginRefused("login refused")
        account = login.account
        elsewhere = self.options.shards if self.shards is not None else ()
        vhosts = [
            vhost for vhost in (*self.broker.vhosts, *elsewhere) if account.allowed_in(vhost) is not None
        ]
        return {"user": name, "tags": list(account.tags), "vhosts": vhosts}

    def _close_connection(self, argument: Any) -> dict[str, Any]:
        wanted = argument if isinstance(argument, dict) else {"name": argument}
        name, reason = wanted.get("name"), wanted.get("reason", "closed by an operator")
        found = [client for client in self.clients if client.peer == name]
        if not found:
            raise KernelError(f"there is no connection {name!r}")
        for client in found:
            client.hang_up(str(reason))
        return {"closed": len(found)}

    # Clients

    def add(self, client: Client, on_ended: Callable[[], None]) -> None:
        """A front end has a new client.  ``on_ended`` is called when it is over."""
        self.clients[client] = on_ended
        self.host.report(EngineEvent(engine=self.name, what="connected", peer=client.peer))

    def has_ended(self, client: Client, reason: str) -> None:
        """A client has ended.  Every client calls this once."""
        on_ended = self.clients.pop(client, None)
        self.busy.pop(client, None)
        # Counters of past connections have to stay in the sums, which may only grow.
        _add(self._ended, client)
        if on_ended is not None:
            on_ended()
        event = EngineEvent(engine=self.name, what="disconnected", peer=client.peer, detail=reason)
        self.host.report(event)

    def login_refused(self, peer: str, name: str, how: str, now: float) -> None:
        """A login has failed.  All are counted; one a second at most is reported."""
        self._logins_refused += 1
        if now < self._next_login_report:
            return
        self._next_login_report = now + _LOGIN_REPORT_PERIOD
        more = self._logins_refused - self._logins_reported - 1
        self._logins_reported = self._logins_refused
        detail = f"user {name[:_LONGEST_NAME]!r} with {how}" + (
            f"; and {more} more since the last such line" if more else ""
        )
        self.host.report(EngineEvent(engine=self.name, what="login refused", peer=peer, detail=detail))

    def _on_refused(self, detail: str) -> None:
        self.host.report(EngineEvent(engine=self.name, what="refused", detail=detail))

    # Turns

    def is_busy(self, client: Client) -> None:
        """Have ``client.finish`` called at the end of this turn.  Calling this twice does no harm."""
        self.busy[client] = None

    def finish_turn(self, now: float) -> None:
        """End the turn: process queues, send to the routes, write to the clients, have the store write."""
        self._reads = 0
        # Queues first: they deliver, and may drop messages into other queues.  The routes are sent to before
        # the clients are written to, so that ``going`` is known when publishers are judged below.
        broker, feed = self.broker, self.feed
        broker.process_queues(now)
        # Most brokers have no observers and no routes, and a turn may be one small message: so it is looked
        # here whether there is anything to call for.
        if self._observers.observers:
            self._observers.notify()
        if feed.waiting:
            self._send_to_routes()
        # What each queue may have in memory depends on all others, and is computed as seldom as the alarms
        # are.
        alarms = self.alarm_watch.alarms
        if now >= alarms.next_check:
            self.check_resources(now)
        # Clients that publish are blocked here, one by one, and not when the alarm is raised: RabbitMQ as
        # well blocks a connection only when it publishes.
        low = alarms.reason if alarms.raised else ""
        # Taken out first: a client that becomes busy while others are told is for the next turn.  A client
        # may also end in here, because a write fails; ``finish`` does nothing for one that has ended.
        busy, self.busy = self.busy, {}
        for client in busy:
            # Only those who publish make a broker full.  A client that only consumes is read on: its
            # acknowledgements free memory.
            if client.published:
                self._disk_is_behind = self._disk_is_behind or broker.store.full
                if not feed.going or self._disk_is_behind:
                    client.hold_back()
                if low:
                    client.block(low)
            client.finish(now)
        # Last, since it wakes the writer's thread, which would compete for the interpreter's lock while
        # clients are written to: 690 instead of 450 us of processor time for a persistent message with its
        # confirm.
        self._flushing = True
        broker.store.flush()
        self._flushing = False
        # Refilled windows, and a flush that was written at once, make clients busy and touch queues.
        if self.busy or broker.touched:
            self.finish_soon()
        deadline = broker.next_deadline()
        if deadline is not None and self._timer is not None:
            self._timer.arm(deadline)

    def _send_to_routes(self) -> None:
        was_full = not self.feed.going
        self.feed.flush()
        # The reader has made room, and somebody has published before the port could tell: now it has no
        # reason to tell any more, and those who were held back before would wait for ever.
        if was_full and self.feed.going:
            self.host.soon(self._go_on)

    def finish_read(self, now: float) -> None:
        """End the turn of a short read, or put that off: the next read is part of the same turn.

        It is put off while the next socket that is ready is of this engine, too.  Many consumers that work
        message by message then share what the end of a turn costs, which is a third of what it takes to serve
        one of them alone.
        """
        if self._reads < READS_A_TURN and self.host.poller.more:
            self._reads += 1
            # The next one may be gone by then, or be no client's.
            if not self._read_posted:
                self._read_posted = True
                self.host.soon(self._on_reads)
        else:
            self.finish_turn(now)

    def has_nothing_for_others(self) -> bool:
        """Whether a read has made nothing ready, for any client but the one that is busy, or for the disk.

        What is acknowledged may leave the disk, and make room for deliveries.
        """
        broker = self.broker
        return len(self.busy) == 1 and not broker.is_durable and not broker.touched

    def finish_reads(self, now: float) -> None:
        """End the turn of reads whose end was put off, if there are any."""
        if self._reads:
            self.finish_turn(now)

    def _on_reads(self) -> None:
        self._read_posted = False
        if self.running:
            self.finish_reads(self.host.now())

    def finish_soon(self) -> None:
        """End another turn soon, after what is ready now: a client can take more, or was lost."""
        if not self._soon and self.running:
            self._soon = True
            self.host.soon(self._on_soon)

    def _on_soon(self) -> None:
        self._soon = False
        self.finish_turn(self.host.now())

    def _on_stored(self) -> None:
        """The disk has more: confirm it, and read again from clients that waited for the disk."""
        if self._disk_is_behind:
            self._go_on()
        # A small group is written where it is flushed, by this thread and within ``finish_turn``.  That turn
        # is not over, and looks itself whether clients have become busy.
        if not self._flushing:
            self.finish_turn(self.host.now())

    def _go_on(self) -> None:
        """The disk has caught up, or the routes have room: read again, unless the other reason holds."""
        was_behind, self._disk_is_behind = self._disk_is_behind, self.broker.store.full
        if self._disk_is_behind:
            return
        # The routes were not read while the disk was behind, and their port does not ring a second time for
        # batches that wait already.
        if was_behind:
            self.host.soon(self.on_output)
        if self.feed.going:
            for client in list(self.clients):
                client.go_on()

    def _held(self) -> int:
        """Return how many octets of memory messages take.

        Ready messages, and those that clients are responsible for.
        """
        of_clients = sum([client.unacked_bytes + client.unpublished_bytes for client in self.clients])
        return bytes_in_queues(self.broker) + of_clients

    def _on_memory_stays_low(self) -> None:
        """Blocking publishers has not helped: close one, if it is unpublished messages that take the memory.

        Queues can be emptied by consumers.  But a publisher that is blocked in the middle of a message or a
        transaction is not read, so it can never finish it.
        """
        unpublished = {client: client.unpublished_bytes for client in self.clients}
        if not 2 * sum(unpublished.values()) > self._held():
            return
        # One at a time: the next check finds out whether that was enough.
        largest = max(unpublished, key=unpublished.__getitem__)
        largest.hang_up(
            f"low on memory: {unpublished[largest]:,} bytes of this connection are in messages that are not "
            "complete, or not committed"
        )

    def _on_alarms_lifted(self) -> None:
        """Read the publishers and the routes again."""
        for client in self.clients:
            client.unblock()
            self.is_busy(client)
        self.host.soon(self.on_output)

    def _on_deadline(self) -> None:
        now = self.host.now()
        self.broker.handle_timeout(now)
        self.finish_turn(now)

    # The port's owner

    def on_output(self) -> None:
        """The routes have something for the broker."""
        now = self.host.now()
        self._disk_is_behind = self._disk_is_behind or self.broker.store.full
        # Batches that are not taken stay in their pipes, whose water marks make the senders wait.
        waits = self._disk_is_behind or self.alarm_watch.alarms.raised
        if not waits and self.feed.receive(now):
            self.host.soon(self.on_output)
        self.finish_turn(now)

    def on_writable(self) -> None:
        """The routes have room again: read the publishers."""
        self.feed.going = True
        self._go_on()

    def on_confirmed(self, position: int) -> None:
        """The routes have confirmed everything up to ``position``: confirm it to the publishers."""
        self.feed.confirmed = position
        # Which client waits for which position is known to the clients alone; most wait for none.
        for client in self.clients:
            if client.confirming:
                self.busy[client] = None
        self.finish_turn(self.host.now())


def _add(sums: dict[str, int], client: Client) -> None:
    sums["messages_in"] += client.messages_in
    sums["messages_out"] += client.messages_out
    sums["bytes_in"] += client.bytes_in
    sums["bytes_out"] += client.bytes_out
