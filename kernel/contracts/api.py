"""API: what application code sends and receives with, in a thread of the application.

``kernel.open(name)`` calls ``ApiKind.create``, in the thread that will use the API.  An API that sends or
receives over routes joins the dispatcher (``ApiSetup.join``) and gets a ``CallerThread``: its port, and the
means to wait.  The kernel calls an API only when it closes: ``kernel_closed`` first, and ``dispose`` at the
very end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from typing import Protocol as Interface

import msgspec

from kernel.contracts.engine import Port, PortOwner
from kernel.contracts.message import Batch, Envelope
from kernel.contracts.protocol import Side


class Api(Interface):
    """The object that the application uses, as the kernel sees it."""

    @property
    def closed(self) -> bool:
        """Whether the application has closed it; the kernel then forgets it.  Any thread."""
        ...

    # ``Kernel.close`` calls it for one API after the other, before the threads begin to write out: from then
    # on no more messages come from the application.
    def kernel_closed(self, reason: str) -> None:
        """Wake the threads that wait in a call: the call has to raise ``KernelClosed``.

        Called by any thread, when the kernel begins to close; must not wait.
        """
        ...

    # Not earlier: a thread that still works rings the doorbell of the application's thread.
    def dispose(self) -> None:
        """Close what is left: the port, descriptors.

        Called in the thread that joins the kernel, when no thread of the kernel is left.
        """
        ...


class Marks(Interface):
    """What a writer of bare bodies has to know about the water marks of a pipe."""

    @property
    def when_full(self) -> str:
        """What happens to a message that finds the pipe full.

        ``block``, ``drop-newest`` or ``drop-oldest``.
        """
        ...

    @property
    def bare_limit(self) -> int:
        """The largest body, in bytes, that may be appended bare."""
        ...


# Credit is asked for in advance, so that not even a counter changes for one small message
# (``kernel/pipes/pipe.py``, *Bare bodies*).
class FastPipe(Interface):
    """The only pipe that a port writes to, or all of a fan-out.

    Small bodies may be appended to it without a batch around them.

    Ask for ``credit``, append as many bodies, and call ``signal`` after each one unless ``signalled`` is
    true.
    """

    signalled: bool
    """Whether the reading thread was already told that there is something."""
    unders: bool
    """Whether there was an ``Under``.  To be set before the first one is appended."""

    @property
    def marks(self) -> Marks:
        """The pipe's water marks."""
        ...

    def append_bare(self) -> Callable[[Any], None]:
        """Return the function that appends a body, or a message under an envelope.

        The body must be ``bytes``, and must not be larger than ``marks.bare_limit``.  Under an envelope it is
        given as an ``Under`` (``kernel.contracts.mixed_batch``).
        """
        ...

    def full(self) -> bool:
        """Whether a high mark is reached.  Unused credit counts."""
        ...

    def depth(self) -> int:
        """Return how many messages wait.  Unused credit counts."""
        ...

    def credit(self) -> int:
        """Return how many bodies may be appended before asking again.  They count as written at once.

        0: the pipe is full.  The port's owner is called (``on_writable``) when there is room.
        """
        ...

    def give_back(self, grant: int) -> None:
        """Return the unused part of a credit."""
        ...

    def signal(self) -> None:
        """Tell the reading thread that there is something."""
        ...

    def interrupted(self, item: Any) -> None:
        """Append and signal to the end, or take back the credit: a handler of a signal has raised in it."""
        ...


class CallerPort(Port, Interface):
    """A port as an API sees it: what engines use, and what is needed to wait inside a call."""

    on_topology: Callable[[], Any]
    """A callback that the API may set.  Called in the port's thread after routes or pipes have changed."""
    closed: bool
    """Whether it has left the dispatcher."""

    def writable(self) -> bool:
        """Return whether no route that blocks is full.  True as well if there is no route: see ``routes``."""
        ...

    def has_room_for(self, batch: Batch) -> bool:
        """Return whether a route begins here, and no route makes this batch wait."""
        ...

    def stop(self) -> None:
        """Ask for a call of ``on_writable`` when there is room.  Does not wait."""
        ...

    def take_alone(self, posted: deque[Callable[[], Any]], into: deque[Batch], most: int) -> bool | None:
        """Take from the only pipe, and append what was taken to ``into``; whether there was something.

        ``posted`` is the mailbox of the port's thread: a notice of that pipe is taken out of it.  Wherever
        a handler of a signal raises in the call, nothing is lost, and the next call goes on.  None, and
        nothing was done: process what was posted, and ``take``.
        """
        ...

    def short_cut(self) -> FastPipe | None:
        """Return the pipe that gets everything that is sent here; None if there is no such pipe.

        There is one if one route without filter leads to one pipe, and no route has confirmed so far.  Ask
        again whenever ``on_topology`` is called.
        """
        ...

    def fast_pipe(self) -> FastPipe | None:
        """Return the short cut, or what stands for all pipes of a route that gives each message to all.

        None: there is neither.  For a sender of small messages; ask again as for the short cut.
        """
        ...


# While a lease is active nobody else reads the socket. A thread that slept elsewhere without giving it back
# would not hear of the next message (docs/decisions/0046-leases.md).
NOT_YET: Any = object()
"""What ``Lease.receive_now`` returns if nothing has come."""


class Lease(Interface):
    """The right of an application thread to read and write the socket of one connection itself.

    Only the thread that asked for it uses it.  Before that thread sleeps or looks for messages in any other
    way, it calls ``give_back``.
    """

    offered: bool
    """Whether it may be used.  It does not become true again."""
    active: bool
    """Whether it has begun, which the first call of ``receive`` does, and has not ended."""
    received: int
    """Messages that were received with it."""
    trips: int
    """Messages that were received or sent with it."""
    envelope: Envelope
    """That of all that is received: of the questions of the peer, or of its answers to ours."""
    kept: Any
    """A body that was received and could not be returned, because a handler of a signal
    has raised; or None."""
    descriptor: int
    """It is readable when something has come.  Only for ``receive_now``, and while ``active``."""

    def send(self, body: Any) -> bool:
        """Send one small message; False: it has to be sent on the usual way, after ``give_back``."""
        ...

    def receive(self, timeout: float | None) -> Any:
        """Wait for a message and return its body; None: look on the usual way whether something has come.

        It is None after ``timeout`` seconds, too.
        """
        ...

    def receive_now(self) -> Any:
        """As ``receive``, for a thread that waits in an event loop of its own.

        ``NOT_YET`` if nothing has come.  Then the bell is armed: wait for it and for ``descriptor``, and call
        this again.
        """
        ...

    def give_back(self) -> None:
        """Have the connection read by its own thread again."""
        ...

    def abandon(self, on_left: Callable[[], Any]) -> None:
        """The thread that has it is going to leave the kernel: touch its bell no more.  Any thread.

        If it waits now (``waits``), it is still woken by a post, and calls ``on_left`` should a handler of a
        signal raise there.
        """
        ...

    def waits(self) -> bool:
        """Whether its thread waits in ``receive``.  A post to it ends the call.  Any thread."""
        ...


# These are the functions of the mailbox and of its doorbell themselves: the contract adds no call on the path
# of a message (docs/decisions/0021-what-plugins-own.md).
class CallerThread(Interface):
    """An application thread as a member of the matrix.  Only that thread uses it; ``post`` is for any thread.

    ``wait_until`` is enough for most APIs.  One that has a loop of its own, or that waits for other things as
    well, does these steps itself: ``process``; check whether it has to wait; ``arm``; if that returns true,
    ``sleep``, or wait until ``fileno`` is readable.
    """

    @property
    def port(self) -> CallerPort:
        """The port, under the name of the API."""
        ...

    @property
    def posted(self) -> deque[Callable[[], Any]]:
        """What other threads have posted and ``process`` has not called yet.  Always the same object."""
        ...

    def wait_for(self, attempt: Callable[[], bool], timeout: float | None = None) -> bool:
        """Sleep between two calls of ``attempt``, which serves (``serve``), until it is true.

        False if it is not within ``timeout`` seconds.
        """
        ...

    def serve(self, done: Callable[[], bool]) -> bool:
        """Process what other threads have posted; return ``done()``.  No handler of a signal runs in it."""
        ...

    def wait_until(self, done: Callable[[], bool], timeout: float | None = None) -> bool:
        """Process what other threads post until ``done()`` is true.

        False if it is not within ``timeout`` seconds.

        ``done`` is called at the beginning, and after each call of ``process``.
        """
        ...

    def post(self, callback: Callable[[], Any]) -> None:
        """Have this thread call ``callback`` in ``process``, and wake it if it sleeps.  Any thread."""
        ...

    def process(self) -> bool:
        """Call what other threads have posted; this includes calls of the port's owner.

        False: there was nothing.
        """
        ...

    # An application thread has no timers: nobody else would notice that the time is over.
    def check_stalls(self) -> bool:
        """Stop waiting for destinations whose stall timeout is over; return whether there were any.

        Call it after each wait.
        """
        ...

    def until_stall_timeout(self) -> float:
        """Return the seconds until ``check_stalls`` has something to do, or ``math.inf``.

        Do not sleep longer.
        """
        ...

    # It sets the flag of the doorbell and then looks: what is posted meanwhile is found by the look, or
    # rings.
    def arm(self) -> bool:
        """Ask to be woken by the next post.

        False: there is something already, so process it before sleeping.

        In both cases ``fileno`` becomes readable at the next post.
        """
        ...

    def keep_bell(self) -> None:
        """In ``Api.dispose``: leave the descriptor open until ``close``, since a thread waits for it.

        Any thread.
        """
        ...

    def ask_lease_to_send(self, on_offered: Callable[[Lease], Any]) -> None:
        """Ask for a lease of what all is sent to, where nothing comes from.

        ``on_offered`` is called with it, as what is posted to this thread.
        """
        ...

    def ask_lease(self, under: Envelope | None = None) -> Lease | None:
        """Ask for a lease of the connection to which all is sent; None: there is none.

        The answer is ``Lease.offered``, later.  ``under`` is for one who sends and receives questions and
        answers: the envelope of the questions that will be sent, of which one at a time is open.  Without it
        only connections are lent whose messages have no addresses.
        """
        ...

    def waker(self) -> Callable[[], bool] | None:
        """Return what wakes the only thread that is sent to, ahead of what will be sent; None: there is none.

        It says whether that thread slept, in ``sleep``, and was woken.  A thread that sleeps elsewhere is not
        woken.  To be asked for again when routes or pipes change.
        """
        ...

    # While the flag is set every post costs its thread a system call.
    def disarm(self) -> None:
        """Take back ``arm``: this thread does not sleep."""
        ...

    def sleep(self, timeout: float | None) -> bool:
        """Sleep until woken, at most ``timeout`` seconds; False if it was not woken.  Call ``arm`` before."""
        ...

    def fileno(self) -> int:
        """Return a descriptor, for any event loop.

        It is readable from the time this thread is woken until ``clear``.
        """
        ...

    def wake(self) -> None:
        """Make the descriptor readable, as a post does."""
        ...

    def clear(self) -> None:
        """Make the descriptor unreadable again."""
        ...

    def on_wake(self, callback: Callable[[], Any] | None) -> None:
        """Have ``callback`` called when this thread is woken, by the thread that wakes it.

        None: do not call any more.
        """
        ...

    def wake_by(self, callback: Callable[[], Any] | None) -> None:
        """Have ``callback`` called when this thread is woken, by the thread that wakes it, and nothing else.

        The descriptor does not become readable.  For event loops that can be woken without a descriptor.
        None: wake by the descriptor.
        """
        ...

    def close(self) -> None:
        """Leave the dispatcher: close the port and give up the row and column.

        The object cannot be used again.
        """
        ...


class Join(Interface):
    """How an API joins the dispatcher."""

    def __call__(self, owner: PortOwner, options: dict[str, Any] | None = None) -> CallerThread:
        """Make the calling thread a member of the matrix, with a port that has the API's name.

        ``options`` are those of ``Host.port``.  ``owner`` is called in this thread, inside ``process``.
        """
        ...


def never_told(_: Callable[[], Any]) -> AbstractContextManager[None]:
    """``ApiSetup.waiting`` where there is no kernel that could close."""
    return nullcontext()


class ApiSetup(msgspec.Struct, frozen=True, kw_only=True):
    """The argument of ``ApiKind.create``."""

    name: str
    """The name that was opened."""
    options: Any
    """An instance of the kind's options class."""
    join: Join
    """Joins the dispatcher."""
    rendezvous: dict[str, Any]
    """Objects that engines of one kernel share by name.  Several threads use it: one atomic operation at a
    time."""
    make_protocol: Callable[[str, dict[str, Any], Side], Any]
    """``make_protocol(kind_name, options, side)``: a new conversation of an installed protocol kind."""
    waiting: Callable[[Callable[[], Any]], AbstractContextManager[None]] = never_told
    """``with waiting(wake):`` around what may wait in ``create``: ``wake`` is called, by any thread, if the
    kernel closes meanwhile, or has closed.  ``kernel_closed`` is called only for what was created."""
