"""A ticker.  It is passive, as all engines: its thread calls it when its timer is due or a message comes."""

from __future__ import annotations

from typing import Any

import trio

from kernel.contracts.engine import Host, Port
from kernel.contracts.message import Envelope, batch_of
from kernel_ticker.options import TickerOptions


class Ticker:
    """``kernel.contracts.engine.Engine``, and the owner of its only port."""

    host: Host
    port: Port

    def __init__(self, name: str, options: TickerOptions) -> None:
        self._name = name
        self._seconds = options.seconds
        self._text = options.text.encode()
        self._envelope = Envelope(key=options.key)  # one for all messages: pipes and codecs know it again
        self._due = 0.0
        self._sent = self._received = 0

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        """Tick until cancelled.  Whatever the host gave us, it takes back by itself."""
        self.host = host
        self.port = host.port(self._name, self)
        self._due = host.now() + self._seconds
        self._arm()
        task_status.started(f"every {self._seconds} s")
        await trio.sleep_forever()

    def statistics(self) -> dict[str, Any]:
        """Counters, by the standard names."""
        return {"messages_out": self._sent, "messages_in": self._received}

    def inspect(self, what: str) -> list[dict[str, Any]]:
        """Return the row of ``kernel tickers``."""
        if what != "tickers":
            return []
        return [{"text": self._text.decode(), "seconds": self._seconds, "messages_out": self._sent}]

    def _arm(self) -> None:
        self.host.set_timer(self._due, self._tick, self)

    def _tick(self) -> None:
        self._sent += 1
        self._due += self._seconds
        batch = batch_of([b"%s %d" % (self._text, self._sent)], self._envelope)
        if self.port.send([batch]):
            self._arm()  # otherwise a pipe is full: on_writable will come

    # ------------------------------------------------------------------ the port's owner

    def on_output(self) -> None:
        """Pipes have something for us: the text of the ticks to come."""
        taken = self.port.take()
        for batch in taken.batches:
            self._text = bytes(batch.bodies[-1])
        self._received += taken.count
        self.port.confirm_through(taken.position)

    def on_writable(self) -> None:
        """There is room again.  Ticks that fell into the meantime are left out."""
        self._due = max(self._due, self.host.now())
        self._arm()

    def on_confirmed(self, position: int) -> None:
        """A ticker has nobody to tell."""
