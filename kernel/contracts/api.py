"""API: a way in for application code, which takes part in the matrix from a thread of the application's own.

``kernel.open(name)`` has the API's kind create one, in the thread that is going to use it.  An API that sends or receives
over routes joins the dispatcher (``ApiSetup.join``) and gets a ``CallerThread``: its port, and what it needs to wait.  The
kernel calls an API only when it closes: ``kernel_closed`` first, ``dispose`` at the very end.
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import Any
from typing import Protocol as Interface

import msgspec

from kernel.contracts.engine import Port, PortOwner
from kernel.contracts.message import Batch
from kernel.contracts.protocol import Side


class Api(Interface):
    """What the application holds in its hand, as the kernel sees it."""

    @property
    def closed(self) -> bool:
        """Whether the application has closed it; the kernel then forgets it.  Any thread."""
        ...

    def kernel_closed(self, reason: str) -> None:
        """Wake whoever waits in a call: it has to raise ``KernelClosed``.

        Called from any thread, when the kernel begins to close; must not wait.
        """
        ...

    def dispose(self) -> None:
        """Give back what is left: the port, descriptors.

        Called when no thread of the kernel is left, in the thread that joins the kernel.
        """
        ...


class Marks(Interface):
    """What a writer of bare bodies has to know of a pipe's water marks."""

    @property
    def when_full(self) -> str:
        """``block``, or what the pipe drops when it is full."""
        ...

    @property
    def bare_limit(self) -> int:
        """The largest body, in bytes, that may be appended bare."""
        ...


class FastPipe(Interface):
    """The only pipe that a port writes to: small plain bodies may be appended to it without a batch around them.

    Ask for ``credit``, append as many bodies, and after each ``signal`` unless it is ``signalled``.
    """

    signalled: bool
    """Whether the reading thread knows already that there is something."""

    @property
    def marks(self) -> Marks:
        """The pipe's water marks."""
        ...

    def append_bare(self) -> Callable[[Any], None]:
        """Return the function that appends a body, which must be ``bytes`` of at most ``marks.bare_limit``."""
        ...

    def credit(self) -> int:
        """Return how many bodies may be appended before asking again; they count as written at once.

        0: the pipe is full, and the port's owner will hear ``on_writable``.
        """
        ...

    def give_back(self, grant: int) -> None:
        """Return the unused part of a credit."""
        ...

    def signal(self) -> None:
        """Tell the reading thread that there is something."""
        ...


class CallerPort(Port, Interface):
    """A port as an API sees it: besides what engines use, what it takes to wait inside a call."""

    on_topology: Callable[[], Any]
    """Called after routes or pipes have changed, in the port's thread.  Set it to be told."""
    closed: bool
    """Whether it has left the dispatcher."""

    def writable(self) -> bool:
        """Whether no route that blocks is full.  Also when there is no route at all: see ``routes``."""
        ...

    def has_room_for(self, batch: Batch) -> bool:
        """Whether a route begins here, and none makes this batch wait."""
        ...

    def stop(self) -> None:
        """Wait for room: ``on_writable`` is called when there is some."""
        ...

    def short_cut(self) -> FastPipe | None:
        """Return the pipe that takes all that is sent: one route without filter or confirmation leads to one pipe.

        Look again whenever ``on_topology`` is called.
        """
        ...


class CallerThread(Interface):
    """The place of an application thread in the matrix.  Used by that thread, but for ``post``.

    ``wait_until`` is enough for most APIs.  One that has a loop of its own, or waits for something else as well, does the
    same by hand: ``process``; look; ``arm``; and if that is true ``sleep``, or wait for ``fileno`` to be readable.
    """

    @property
    def port(self) -> CallerPort:
        """The port, under the name of the API."""
        ...

    @property
    def posted(self) -> Sized:
        """What other threads have posted and ``process`` has not called yet.  The same object all the time."""
        ...

    def wait_until(self, done: Callable[[], bool], timeout: float | None = None) -> bool:
        """Process what others post until ``done()``; False when it is not within ``timeout`` seconds.

        ``done`` is called at the beginning, and again after each piece of news.
        """
        ...

    def post(self, callback: Callable[[], Any]) -> None:
        """Have ``callback`` called by this thread in ``process``, and wake it if it sleeps.  Any thread."""
        ...

    def process(self) -> bool:
        """Call what others have posted, the port's owner among it; whether there was anything."""
        ...

    def check_stalls(self) -> bool:
        """Stop waiting for destinations whose stall timeout is over; whether there were any.  After each wait."""
        ...

    def until_stall_timeout(self) -> float:
        """Seconds until ``check_stalls`` has something to do; ``math.inf`` if it has not.  Sleep no longer."""
        ...

    def arm(self) -> bool:
        """Ask to be woken by the next post; False if there is something already: process it first.

        From here on ``fileno`` becomes readable at the next post, either way.
        """
        ...

    def disarm(self) -> None:
        """Take ``arm`` back: this thread is awake."""
        ...

    def sleep(self, timeout: float | None) -> bool:
        """Sleep until woken, at most ``timeout`` seconds; False if nobody woke it.  After ``arm`` was true."""
        ...

    def fileno(self) -> int:
        """Return the descriptor that is readable once this thread was woken, until ``clear``; for any event loop."""
        ...

    def wake(self) -> None:
        """Make the descriptor readable, as a post does."""
        ...

    def clear(self) -> None:
        """Forget that this thread was woken."""
        ...

    def on_wake(self, callback: Callable[[], Any] | None) -> None:
        """Have ``callback`` called as well when this thread is woken, by the thread that wakes it; None: no longer."""
        ...

    def close(self) -> None:
        """Leave the dispatcher: close the port and give the place back, once and for all."""
        ...


class Join(Interface):
    """How an API joins the dispatcher."""

    def __call__(self, owner: PortOwner, options: dict[str, Any] | None = None) -> CallerThread:
        """Give the calling thread a place and a port under the API's name; ``options`` as for ``Host.port``.

        ``owner`` is called in this thread, from ``process``.
        """
        ...


class ApiSetup(msgspec.Struct, frozen=True, kw_only=True):
    """All that ``ApiKind.create`` is told."""

    name: str
    """The name that was opened."""
    options: Any
    """An instance of the kind's options class."""
    join: Join
    """Joins the dispatcher."""
    rendezvous: dict[str, Any]
    """Where engines of this kernel leave what others look for by name; one atomic operation at a time."""
    make_protocol: Callable[[str, dict[str, Any], Side], Any]
    """``make_protocol(kind_name, options, side)``: a new conversation of an installed protocol kind."""
