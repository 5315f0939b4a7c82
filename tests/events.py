"""Events: what a kernel's engines report, and a way to wait for it."""

from __future__ import annotations

import threading

from kernel.contracts.engine import EngineEvent


class Events:
    """Give it to a kernel as ``on_event``."""

    def __init__(self) -> None:
        self.seen: list[EngineEvent] = []
        self._changed = threading.Condition()

    def __call__(self, event: EngineEvent) -> None:
        with self._changed:
            self.seen.append(event)
            self._changed.notify_all()

    def all(self, what: str, engine: str = "") -> list[EngineEvent]:
        return [event for event in self.seen if event.what == what and engine in ("", event.engine)]

    def count(self, what: str, engine: str = "") -> int:
        return len(self.all(what, engine))

    def wait(self, what: str, engine: str = "", times: int = 1, timeout: float = 60) -> EngineEvent:
        """Wait until ``what`` has been reported so many times; return the last of them."""
        with self._changed:
            done = self._changed.wait_for(lambda: self.count(what, engine) >= times, timeout)
        assert done, f"no {what!r} (x{times}) in {[(e.engine, e.what, e.detail) for e in self.seen]}"
        return self.all(what, engine)[-1]
