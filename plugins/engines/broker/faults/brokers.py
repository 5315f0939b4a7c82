"""Brokers: a broker with faults on demand, as a test has it.

``docs/testing_with_faults.md`` is the guide.
"""

from __future__ import annotations

import contextlib
import time
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from kernel.contracts.errors import KernelError
from plugins.engines.broker.faults.places import CLIENT, AnotherProcess, Options, Place, ThisProcess

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from plugins.engines.broker.faults.cut import Counted
    from plugins.engines.broker.faults.record import What
    from plugins.engines.broker.local.client import BrokerClient

TIMEOUT = 10.0
"""Seconds that ``wait`` and the counted questions wait, if nothing else is said."""
_PERIOD = 0.005
"""Seconds between two looks while something is waited for."""


Found = TypeVar("Found")


class Recorded(msgspec.Struct, frozen=True):
    """One message that has passed."""

    body: bytes
    exchange: str
    key: str
    queues: tuple[str, ...]
    """The queues that it went to, or the queue that it came from."""
    client: str
    """The address of the client that has published it, got it or acknowledged it; empty:
    none over a socket."""
    redelivered: bool


class Connected(msgspec.Struct, frozen=True):
    """A client that is connected."""

    names: tuple[str, ...]
    """What ``cut`` may call it."""
    state: str
    """``starting``, ``running``, ``flow``, or ``blocked``."""


class CutLater:
    """A cut that was asked for: a context manager that forgets it at the end, if it has not happened."""

    def __init__(self, place: Place, number: int) -> None:
        self._place = place
        self._number = number

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._place.operate({"do": "end-cut", "number": self._number})

    @property
    def peer(self) -> str:
        """The address of the client whose connection was lost; empty: it has not happened yet."""
        peer: str = self._place.operate({"do": "peer-of", "number": self._number})["peer"]
        return peer

    def wait(self, timeout: float = TIMEOUT) -> str:
        """Wait until it has happened; return the client's address.  ``TimeoutError`` if it does not."""
        return _wait(
            lambda: self.peer, bool, timeout, lambda _: "no connection has come to the number of the cut"
        )


class FaultyBroker:
    """A broker for one test.  Its methods may be called by any thread, one at a time.

    Each fault begins when its method is called.  One that has an end is a context manager, and
    ends with the block.
    """

    def __init__(self, folder: Path, options: Options | None = None, *, process: bool = False) -> None:
        """``folder`` is for its data and files.  ``options``: those of a broker, as in a topology file.

        ``process``: run it in a process of its own.
        """
        self._options: dict[str, Any] = {
            # What this machine has left is not what a test is about.  A restart reads what was written: only
            # a power cut needs ``fsync``.
            "disk_free_limit": 0,
            "memory_limit": 0,
            "fsync": False,
            "data_dir": str(folder / "data"),
            **(options or {}),
        }
        self._place: Place = AnotherProcess() if process else ThisProcess()
        self._places: dict[str, str] = {}
        self._earlier: dict[What, list[dict[str, Any]]] = {
            "published": [],
            "delivered": [],
            "acknowledged": [],
        }

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<FaultyBroker {', '.join(self._places.values()) or 'stopped'}>"

    def start(self) -> None:
        """Start it, and wait until it listens."""
        self._place.start(self._options)
        places = self._place.operate({"do": "places"})["places"]
        self._places = {}
        for each in places:
            self._places.setdefault(each["protocol"], each["address"])

    def stop(self) -> None:
        """Stop it in good order."""
        self._place.stop()

    # Where it is

    def port(self, protocol: str = "amqp") -> int:
        """Return the port of a front end: ``amqp``, ``mqtt``, ``stomp`` or one of another plugin."""
        address = self._places.get(protocol)
        if address is None:
            raise KernelError(f"no front end {protocol!r}; installed: {', '.join(self._places)}")
        return int(address.rpartition(":")[2].partition("/")[0])

    @property
    def url(self) -> str:
        """The address as AMQP clients want it, for guest/guest and the virtual host ``/``."""
        return f"amqp://guest:guest@127.0.0.1:{self.port()}/"

    def open(self) -> BrokerClient:
        """Open a client without a socket, for a broker in this process."""
        if not isinstance(self._place, ThisProcess) or self._place.kernel is None:
            raise KernelError("only a broker in this process has clients without a socket")
        return self._place.kernel.open(CLIENT, "broker-client")

    # What has passed

    def published(self, queue: str = "", *, count: int = 0, timeout: float = TIMEOUT) -> list[Recorded]:
        """Return the messages that were published, to one queue or to any, in their order.

        ``count``: wait until there are so many.
        """
        return self._recorded("published", queue, count, timeout)

    def delivered(self, queue: str = "", *, count: int = 0, timeout: float = TIMEOUT) -> list[Recorded]:
        """Return the messages that were delivered to clients, each as often as it was."""
        return self._recorded("delivered", queue, count, timeout)

    def acknowledged(self, queue: str = "", *, count: int = 0, timeout: float = TIMEOUT) -> list[Recorded]:
        """Return the messages that were acknowledged.

        Without those of consumers that acknowledge automatically.
        """
        return self._recorded("acknowledged", queue, count, timeout)

    def _recorded(self, what: What, queue: str, count: int, timeout: float) -> list[Recorded]:
        def look() -> list[Recorded]:
            rows = [*self._earlier[what], *self._place.operate({"do": "records", "what": what})["rows"]]
            return [_recorded(row) for row in rows if queue in ("", *row["queues"])]

        def text(found: list[Recorded]) -> str:
            return f"{len(found)} of {count} messages were {what}" + (f" ({queue!r})" if queue else "")

        return _wait(look, lambda found: len(found) >= count, timeout, text)

    def connections(self) -> list[Connected]:
        """Return the clients that are connected over a socket."""
        rows = self._place.operate({"do": "connections"})["rows"]
        return [Connected(tuple(row["names"]), row["state"]) for row in rows]

    # Faults

    def cut(self, client: str = "", *, after: int = 0, of: Counted = "deliveries") -> CutLater:
        """Lose the connection of a client, without a closing message, after a number of messages.

        ``client``: its user, its ``connection_name`` (AMQP), its client identifier (MQTT) or its address;
        empty: the first that comes to the number.  ``of``: ``deliveries``, ``acks``, ``publishes`` or
        ``confirms``.  ``after`` = 0: when the first one is due.
        """
        number = self._place.operate({"do": "cut", "client": client, "of": of, "after": after})["number"]
        return CutLater(self._place, number)

    def cut_now(self, client: str = "") -> list[str]:
        """Lose the connections of a client, or all; return their addresses.

        ``KernelError`` if there is none.
        """
        peers: list[str] = self._place.operate({"do": "cut-now", "client": client})["peers"]
        return peers

    @contextlib.contextmanager
    def refuse(self, *, publishes: bool = True, connections: bool = False) -> Iterator[None]:
        """Refuse publishes as a full queue does, or refuse new connections.

        A publisher that wants confirms gets a nack.
        """
        self._place.operate({"do": "refuse", "publishes": publishes, "connections": connections})
        try:
            yield
        finally:
            self._place.operate({"do": "refuse", "publishes": False, "connections": False})

    def redeliver(self, queue: str = "") -> int:
        """Deliver again what consumers have not acknowledged, as redelivered.

        Return how many messages that is.

        Both deliveries can be acknowledged.  Messages of ``basic.get`` do not come again.
        """
        messages: int = self._place.operate({"do": "redeliver", "queue": queue})["messages"]
        return messages

    def freeze(self) -> contextlib.AbstractContextManager[None]:
        """Neither read nor write meanwhile.  Clients see a connection on which nothing happens."""
        return self._place.frozen()

    @contextlib.contextmanager
    def slow_disk(self, seconds: float) -> Iterator[None]:
        """Have each write to the disk take so long.

        What waits for it is confirmed at the end of the block.
        """
        self._place.operate({"do": "slow-disk", "seconds": seconds})
        try:
            yield
        finally:
            self._place.operate({"do": "slow-disk", "seconds": 0.0})

    @contextlib.contextmanager
    def full_disk(self) -> Iterator[None]:
        """Have writes to the disk fail, and block publishers, as when the disk is full."""
        self._place.operate({"do": "full-disk", "full": True})
        try:
            yield
        finally:
            self._place.operate({"do": "full-disk", "full": False})

    def advance(self, seconds: float, *, silence: bool = False) -> None:
        """Set the broker's clock forward: what expires, and what is delayed, is due then.

        ``silence``: clients count as silent for that time, so that the broker closes
        connections with heartbeats.
        """
        self._place.operate({"do": "advance", "seconds": seconds, "silence": silence})

    def kill_and_restart(self) -> None:
        """End the broker without giving it time for anything, and start it again on the same ports.

        What was confirmed as durable is there again.  Faults end.  What passed before is still recorded.
        """
        for what, rows in self._earlier.items():
            rows += self._place.operate({"do": "records", "what": what})["rows"]
        self._place.kill(self._options["data_dir"])
        self._options["listeners"] = [
            {**_listener(self._options, number), "protocol": protocol, "address": address}
            for number, (protocol, address) in enumerate(self._places.items())
        ]
        self.start()


def _listener(options: Mapping[str, Any], number: int) -> Mapping[str, Any]:
    listeners: list[Mapping[str, Any]] = list(options.get("listeners", ()))
    return listeners[number] if listeners else {}


def _recorded(row: Mapping[str, Any]) -> Recorded:
    return Recorded(
        b64decode(row["body"]),
        row["exchange"],
        row["key"],
        tuple(row["queues"]),
        row["client"],
        row["redelivered"],
    )


def _wait(
    look: Callable[[], Found], enough: Callable[[Found], bool], timeout: float, text: Callable[[Found], str]
) -> Found:
    until = time.monotonic() + timeout
    while not enough(found := look()):
        if time.monotonic() > until:
            raise TimeoutError(f"after {timeout:g} s: {text(found)}")
        time.sleep(_PERIOD)
    return found
