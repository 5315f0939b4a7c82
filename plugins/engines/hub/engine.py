"""Hub: takes from all connections of an engine, and sends to all of them again.

Each connection has one pipe to the hub and one from it.  With a route from the engine to itself, N
connections have N x (N - 1) pipes.

No echo
-------
The hub puts the name of the connection that a message came from into ``envelope.reply_to``, and the router
``others`` leaves out the connection of this name.  So an own ``reply_to`` does not pass a hub.

Confirmation
------------
A message is confirmed to its sender when the route behind the hub has confirmed it.  Positions of messages
taken and of messages sent differ: messages that no one waits for have a position only where they are taken.
``_unconfirmed`` translates.

Order
-----
All receivers see the messages in the order in which the hub has taken them.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec
import trio

from kernel.contracts.engine import Host, Port
from kernel.contracts.message import Batch, Envelope
from plugins.engines.hub.options import HubOptions

_MOST_NAMES = 10_000
"""Connections whose last envelope is kept.  Names of connections that have left are cleared with the rest."""


class Hub:
    """Passes on what comes in.  All methods but ``statistics`` run in the engine's thread."""

    def __init__(self, name: str, options: HubOptions) -> None:
        self._name = name
        self._batch = options.batch
        self._host: Host | None = None
        self._port: Port | None = None
        self._may_send = True
        self._messages = 0
        self._bytes = 0
        self._marked: dict[str, tuple[Envelope, Envelope]] = {}
        """By the name of a connection: the envelope of its last batch, without and with the mark."""
        self._unconfirmed: deque[tuple[int, int | None]] = deque()
        """The position of the last message sent, and that of the same message where it was taken."""

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        """Run until cancelled."""
        self._host = host
        self._port = host.port(self._name, self)
        task_status.started("")
        self.on_output()
        await trio.sleep_forever()

    def on_output(self) -> None:
        """Pass on one batch of each connection that has something, in turn."""
        port, host = self._port, self._host
        if port is None or host is None or not self._may_send:
            return
        taken = port.take(self._batch)
        if not taken.batches:
            return
        self._messages += taken.count
        # One ``take`` reads one pipe, so all of these have one origin.
        origin = port.origin[0]
        batches = [self._mark(origin, batch) for batch in taken.batches]
        self._bytes += sum(batch.size for batch in batches)
        # What was taken is sent in any case. False: the pipes are full, so nothing more is taken, and the
        # senders' pipes fill up.
        self._may_send = port.send(batches)
        if port.confirms:
            # Behind ``send``, which has made the position of the last message. A confirmation is a call of a
            # later turn.
            self._unconfirmed.append((port.sent(), taken.position))
        else:
            port.confirm_through(taken.position)
        # In a later turn, so that the other engines of this thread get theirs first.
        if port.has_input():
            host.soon(self.on_output)

    def on_writable(self) -> None:
        """Go on: the pipes take more."""
        self._may_send = True
        self.on_output()

    def on_confirmed(self, position: int) -> None:
        """Confirm to the senders what all receivers have confirmed."""
        taken: int | None = None
        while self._unconfirmed and self._unconfirmed[0][0] <= position:
            # None: nobody waits for this batch.
            taken = self._unconfirmed.popleft()[1] or taken
        if self._port is not None:
            self._port.confirm_through(taken)

    def statistics(self) -> dict[str, Any]:
        """Return the counters of this moment.  Any thread."""
        return {
            "messages_in": self._messages,
            "messages_out": self._messages,
            "bytes_in": self._bytes,
            "bytes_out": self._bytes,
        }

    def _mark(self, origin: str, batch: Batch) -> Batch:
        # One envelope object for all batches of a flow, so that routers and codecs can compare by identity.
        last = self._marked.get(origin)
        if last is None or last[0] is not batch.envelope:
            if len(self._marked) >= _MOST_NAMES:
                self._marked.clear()
            last = batch.envelope, msgspec.structs.replace(batch.envelope, reply_to=origin)
            self._marked[origin] = last
        return batch.under(last[1])
