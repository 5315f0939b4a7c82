"""Fast sender: the fast path of an application's ``send`` for a small message.

It goes to the only destination, or to all destinations of a fan-out.  APIs share it.  The body is appended
to the pipe as it is, without a batch around it, or together with its key.

It is a closure because a closure is the fastest callable that can keep a count: 109 ns a call, where a method
takes 152 and ``deque.append`` alone 17.  The pipe gives it credit in advance, for up to 1,024 messages at a
time, so that neither side has to count each message.

The state is five variables of the closure: ``pipe`` and its ``append``; ``small``, the largest body that may
be appended bare; ``credit``, an iterator that has as many items as bodies may be appended; ``owner``, the
thread.  Invariants: ``credit`` is used up and ``small`` is -1 while there is no pipe, and as many bodies
as ``credit`` has items are already counted as written in the pipe.  Whoever stops using a pipe therefore
gives the rest back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized
from itertools import repeat
from operator import length_hint
from threading import get_ident
from typing import Any, NamedTuple
from typing import Protocol as Interface

from kernel.contracts.api import CallerPort, FastPipe
from kernel.contracts.message import Batch, Buffer
from kernel.contracts.mixed_batch import Entry, Under
from kernel.hosting.uninterrupted import UNINTERRUPTED

LongWay = Callable[[Buffer, str | None, float | None], None]
Headers = Mapping[str, Any]
WithHeaders = Callable[[Buffer, str | None, float | None, Headers], None]

_USED_UP = repeat(None, 0)


class Send(Interface):
    """Sends one message."""

    def __call__(
        self,
        body: Buffer,
        *,
        key: str | None = None,
        headers: Headers | None = None,
        timeout: float | None = None,
    ) -> None:
        """Send; wait while the pipe is full, at most ``timeout`` seconds (``TimedOut``)."""
        ...


class FastSender(NamedTuple):
    """Functions over one shared state."""

    send: Send
    """Send on the fast path if possible, else on the slow path."""
    plug: Callable[[FastPipe | None], None]
    """Use this pipe from now on; unused credit of the one before is given back."""
    refill: Callable[[Buffer, Entry | None], bool]
    """Ask for credit and send this body; False if there is no fast path or no room.

    The entry is that of its envelope; None: it is plain."""
    send_under: Callable[[Buffer, Entry], bool]
    """Send this body under an envelope on the fast path; False if that is impossible."""
    give_back: Callable[[], None]
    """Give back the unused credit."""


def fast_sender(  # noqa: C901 - one state, several functions
    posted: Sized,
    long_way: LongWay,
    this_thread: Callable[[], int] = get_ident,
    with_headers: WithHeaders | None = None,
) -> FastSender:
    """Return a sender that takes the slow path until it has a pipe.

    ``posted``: the calls that were posted to the thread.  They may change routes, so while there are any
    the slow path is taken, which processes them.  The calling thread is checked once a batch: a check for
    each message would cost 20 ns, a fifth of the call.  An API that any thread may use gives ``int`` as
    ``this_thread``: all threads are one to it.  ``with_headers`` sends messages with headers, which take
    the slow path always.
    """
    pipe: FastPipe | None = None
    append: Callable[[Any], None] = _no_pipe
    small = -1
    credit = _USED_UP
    owner = this_thread()

    # ``key`` and what follows are given by name (``Send``). A function that insists on that takes 30 ns more:
    # the interpreter looks their defaults up by name.
    def send(  # noqa: C901 - each branch in it is a call less
        body: Buffer,
        key: str | None = None,
        timeout: float | None = None,
        headers: Any = bytes,
    ) -> None:
        # ``bytes`` only: other buffers may be changed by the application, and have to be checked.
        # ``headers`` that are given are no type, and make the comparison false: so messages without them do
        # not pay for them.  Without a pipe nothing is small.
        if (
            type(body) is headers
            and len(body) <= small
            and not posted
            and (pipe.signalled or this_thread() == owner)  # type: ignore[union-attr]  # there is a pipe
        ):
            # Append first, look at ``signalled`` afterwards: the reader clears the flag before it takes, so
            # that it either takes this body or is signalled again.
            if key is None:
                # At most once: an iterator counts in fewer steps than a variable does.
                # ``try`` around the loop, not in it, where it would take 10 ns.
                try:
                    for _ in credit:
                        append(body)
                        if not pipe.signalled:  # type: ignore[union-attr]  # there is a pipe
                            pipe.signal()  # type: ignore[union-attr]
                        return
                except BaseException:
                    interrupted(body)
                    raise
            elif type(key) is str:
                # Before the credit is used: a handler of a signal may raise behind this call.
                under = Under(key, body)  # type: ignore[arg-type]  # ``bytes``, as was just tested
                try:
                    for _ in credit:
                        pipe.unders = True  # type: ignore[union-attr]  # there is a pipe
                        append(under)
                        if not pipe.signalled:  # type: ignore[union-attr]
                            pipe.signal()  # type: ignore[union-attr]
                        return
                except BaseException:
                    interrupted(under)
                    raise
        if headers is bytes or not headers:  # none were given, or there are none in them
            long_way(body, key, timeout)
        elif with_headers is None:
            raise TypeError("messages with headers cannot be sent here")
        else:
            with_headers(body, key, timeout, headers)

    def plug(new: FastPipe | None) -> None:
        nonlocal pipe, append, small
        give_back()  # to the old pipe, so before ``pipe`` changes
        pipe = new
        append = new.append_bare() if new is not None else _no_pipe
        small = new.marks.bare_limit if new is not None else -1

    def send_under(body: Buffer, entry: Entry) -> bool:
        # The same conditions as in ``send``, which does without this call.
        if (
            pipe is None
            or type(body) is not bytes
            or len(body) > small
            or posted
            or not (pipe.signalled or this_thread() == owner)
        ):
            return False
        under = Under(entry, body)
        try:
            for _ in credit:
                pipe.unders = True
                append(under)
                if not pipe.signalled:
                    pipe.signal()
                return True
        except BaseException:
            interrupted(under)
            raise
        return False

    def refill(body: Buffer, entry: Entry | None = None) -> bool:
        nonlocal credit
        # With credit left the message came here for another reason, and the slow path has to deal with that.
        if pipe is None or length_hint(credit) or len(body) > small:
            return False
        # A body that is written without its credit, or a credit that is counted and not used, stays in the
        # counts of the pipe for ever.
        with UNINTERRUPTED:
            room = pipe.credit()
            if not room:
                return False
            credit = repeat(None, room - 1)
            # A bare body has to be ``bytes``.  Bare bodies are small, so the copy of another buffer costs
            # little.
            put(pipe, body if type(body) is bytes else bytes(body), entry)
        return True

    def put(pipe: FastPipe, body: bytes, entry: Entry | None) -> None:
        if entry is None:
            append(body)
        else:
            pipe.unders = True
            append(Under(entry, body))
        if not pipe.signalled:
            pipe.signal()

    def interrupted(item: Buffer | Under) -> None:
        # A handler of a signal has raised behind the append, or in one to several pipes.
        if pipe is not None:
            with UNINTERRUPTED:
                pipe.interrupted(item)

    def give_back() -> None:
        nonlocal credit
        unused = length_hint(credit)
        if unused and pipe is not None:
            with UNINTERRUPTED:
                pipe.give_back(unused)
                credit = _USED_UP

    return FastSender(send, plug, refill, send_under, give_back)


def send_whole(port: CallerPort, batch: Batch) -> None:
    """Send a batch, or nothing if a handler of a signal raises.  There has to be room for it."""
    only = port.short_cut()
    if only is not None and only.marks.when_full == "block":
        # The pipe alone sees to it (``Pipe.write``).
        port.send((batch,))
    else:
        with UNINTERRUPTED:
            port.send((batch,))


def _no_pipe(_: Any) -> None:
    raise AssertionError("there is no room without a pipe")
