"""The sending engine: from a port to a PGM source."""

from __future__ import annotations

from typing import Any

import trio

from kernel.contracts.engine import EngineEvent, Host, Port
from kernel.contracts.kinds import EngineSetup
from kernel.hosting.borrower import Borrower
from kernel.hosting.connection import LOOK
from kernel.hosting.lease import Lease
from kernel.hosting.lent_wire import end_with_routes, suggest_lease
from plugins.engines.pgm.framing import make_encoder
from plugins.engines.pgm.group_source import GroupSource
from plugins.engines.pgm.location import parse_pgm_address
from plugins.engines.pgm.lone_halves import SourceHalf
from plugins.protocols.pgm.packets import tsi_text

BATCH_BYTES = 256 * 1024
"""Bytes, roughly, that are taken from the pipes at once. The next ones are taken when these are sent."""


class PgmSender:
    """Sends the messages of its routes to the group."""

    def __init__(self, setup: EngineSetup) -> None:
        self._name = setup.name
        self._options = setup.options
        self._address, self._location = parse_pgm_address(setup.options.address)
        self._port: Port | None = None
        self._group: GroupSource | None = None
        self._body_size = 128
        self.sent = 0
        """Messages that were taken and sent."""
        self._unsent: int | None = None
        """The port's position after what was taken and is not yet with the operating system."""
        self._quiet = True
        self.quiet_at: float | None = None
        """When the last message was sent; None: there was none."""
        self._borrower = Borrower(self._suggest_lease)
        self._lease: Lease | None = None
        """The last one that was offered."""

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        """Send until cancelled, then end the session."""
        self._host = host
        raw = self._address.transport == "pgm"
        group = GroupSource(
            host,
            self._name,
            self._options,
            self._location,
            raw=raw,
            refill=self._take,
            sent=self._all_sent,
        )
        try:
            source = group.source
            self._encoder = make_encoder(self._address.protocol, self._options, source.tsdu_size)
            self._port = host.port(self._name, self)
            self._group = group
            task_status.started(f"{self._address} as {tsi_text(source.tsi)}")
            group.start()
            await trio.sleep_forever()
        finally:
            group.close()

    def pending(self) -> bool:
        """Whether something is unsent, or receivers may still request it (``linger``)."""
        if self._group is None or self._port is None:
            return False
        if self._port.has_input() or self._group.busy:
            return True
        return self.quiet_at is not None and self._host.now() < self.quiet_at + self._options.linger

    def statistics(self) -> dict[str, Any]:
        """Return the counters."""
        figures = {"messages_out": self.sent}
        if self._group is None:
            return figures
        return {**figures, "messages_refused": self._encoder.refused, **self._group.statistics()}

    def _take(self) -> None:
        port, group = self._port, self._group
        assert port is not None
        assert group is not None
        # Pipes count messages, the rate counts bytes: the size of the last batch's messages converts one to
        # the other.
        taken = port.take(BATCH_BYTES // self._body_size or 1)
        if not taken.batches:
            return
        batches = taken.batches
        self._body_size = sum(batch.size for batch in batches) // taken.count + 1
        self.sent += taken.count
        self._borrower.waited(lone=taken.count == 1)
        self._quiet = False
        # Confirmed in ``_all_sent``, when the operating system has the packets. Receivers confirm nothing to
        # a PGM source.
        self._unsent = taken.position
        refused = self._encoder.refused
        group.send(self._encoder.encode(batches))
        # Reported once; the counter has the rest.
        if self._encoder.refused and not refused:
            event = EngineEvent(engine=self._name, what="refused", detail=self._encoder.problem)
            self._host.report(event)

    def _all_sent(self) -> None:
        """Confirm what was taken: the operating system has all of it, and PGM has no other confirmation."""
        port, group = self._port, self._group
        assert port is not None
        assert group is not None
        if not self._quiet:
            self._quiet = True
            self.quiet_at = self._host.now()
            port.confirm_through(self._unsent)
        # In the next turn of the thread and not at once: NAKs and other engines have their turn in between,
        # and the stack does not grow.
        if port.has_input() and not group.busy:
            self._host.soon(group.work)

    # ------------------------------------------------------------------ leases

    def _suggest_lease(self) -> None:
        """Let an application that sends one message at a time ask for the socket."""
        assert self._port is not None
        suggest_lease(self._port)

    def on_lease_asked(self, lease: Lease) -> None:
        """Called when the thread of an application asks for a lease of the socket."""
        port, group = self._port, self._group
        if (
            port is None
            or group is None
            or group.silent
            or lease.source is not None
            or lease.sends is not None
        ):
            return
        # Heartbeats are armed when the lease is looked at.
        if self._options.source.heartbeat_first < LOOK:
            return
        holder = group.lent.holder()
        if holder is not None:
            if self._lease is not None:
                self._borrower.gave_back(self._lease)
            self._lease = lease
            half = SourceHalf(
                group.lent, holder, group.source, group.group, self._encoder, self, self._host.now
            )
            lease.offer(half, None, None, self._host.post)
            end_with_routes(lease, port)

    # ------------------------------------------------------------------ the port's owner

    def on_output(self) -> None:
        """Called when the port's pipes have input."""
        # A busy group calls ``_take`` itself when it has sent everything.
        if self._group is not None and not self._group.busy:
            self._group.work()

    def on_writable(self) -> None:
        """Nothing is ever sent to the port."""

    def on_confirmed(self, position: int) -> None:
        """Nothing is ever sent to the port."""
