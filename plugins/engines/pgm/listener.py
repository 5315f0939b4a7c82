"""The receiving engine: from a PGM receiver to a port. While the pipes are full, nothing is read."""

from __future__ import annotations

from typing import Any

import trio

from kernel.contracts.engine import EngineEvent, Host, Port
from kernel.contracts.kinds import EngineSetup
from kernel.contracts.message import Batch
from kernel.hosting.lease import Lease
from kernel.hosting.lent_wire import end_with_routes, pipe_to
from plugins.engines.pgm.framing import Decoder, make_decoder
from plugins.engines.pgm.group_receiver import GroupReceiver, Units
from plugins.engines.pgm.location import parse_pgm_address
from plugins.engines.pgm.lone_halves import ReceiverHalf


class PgmReceiver:
    """Receives all sources of the group."""

    def __init__(self, setup: EngineSetup) -> None:
        self._name = setup.name
        self._options = setup.options
        self._address, self._location = parse_pgm_address(setup.options.address)
        self._decoders: dict[bytes, Decoder] = {}
        self._port: Port | None = None
        self._group: GroupReceiver | None = None
        self.messages = 0
        """Messages that were received."""
        self._messages_refused = 0
        self._malformed = 0
        self._refusal_reported = False

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        """Receive until cancelled."""
        self._host = host
        group = GroupReceiver(
            host,
            self._name,
            self._options,
            self._location,
            raw=self._address.transport == "pgm",
            deliver=self._deliver,
            gone=self._forget,
        )
        try:
            self._port = host.port(self._name, self)
            self._group = group
            group.start()
            task_status.started(str(self._address))
            await trio.sleep_forever()
        finally:
            group.close()

    def statistics(self) -> dict[str, Any]:
        """Return the counters."""
        malformed = self._malformed + sum(decoder.malformed for decoder in list(self._decoders.values()))
        figures = {
            "messages_in": self.messages,
            "messages_refused": self._messages_refused,
            "messages_malformed": malformed,
        }
        return figures if self._group is None else {**figures, **self._group.statistics()}

    # ------------------------------------------------------------------ from the group

    def _deliver(self, units: Units) -> None:
        batches: list[Batch] = []
        for tsi, pieces in units:
            decoder = self._decoders.get(tsi)
            if decoder is None:
                # One decoder per source: each sends a stream of its own, with its own losses.
                decoder = self._decoders[tsi] = make_decoder(self._address.protocol, self._options)
            batches += decoder.decode(pieces)
        if not batches:
            return
        self.messages += sum(len(batch.bodies) for batch in batches)
        assert self._port is not None
        assert self._group is not None
        # False: a pipe is full. What was passed is in the pipes all the same; only reading stops, and the
        # socket's buffer fills in our place.
        if not self._port.send(batches):
            self._group.pause()

    def _forget(self, tsi: bytes) -> None:
        """Forget a source."""
        decoder = self._decoders.pop(tsi, None)
        # The counter outlives the decoder.
        self._malformed += decoder.malformed if decoder is not None else 0

    def on_lease_asked(self, lease: Lease) -> None:
        """Called when the thread of an application asks for a lease of the socket."""
        port, group, asked = self._port, self._group, lease.source is self._port
        if port is None or group is None or lease.outgoing is not None or not asked:
            return
        pipe, holder = pipe_to(lease, port), group.lent.holder()
        if pipe is not None and holder is not None:
            half = ReceiverHalf(group.lent, holder, group.receiver, self._decoders, self, self._host.now)
            lease.offer(None, half, pipe, self._host.post)
            end_with_routes(lease, port)

    # ------------------------------------------------------------------ the port's owner

    def on_writable(self) -> None:
        """Called when the port's pipes have room."""
        if self._group is not None:
            self._group.resume()

    def on_output(self) -> None:
        """Drop messages of a route that leads here, and report that once: a receiver cannot send."""
        assert self._port is not None
        while taken := self._port.take():
            self._messages_refused += taken.count
        if not self._refusal_reported:
            self._refusal_reported = True
            group = f"{self._location.group}:{self._location.port}"
            detail = f'this engine only receives (mode = "receive"); one with mode = "send" sends to {group}'
            self._host.report(EngineEvent(engine=self._name, what="refused", detail=detail))

    def on_confirmed(self, position: int) -> None:
        """There is no one to confirm to."""
