"""Loop: the turns of one thread that hosts engines, inside its trio run.

A turn does four things in this order: it calls what other threads posted, fires the timers that are due,
rings the bells of other threads, and asks the poller once, which calls the engines whose descriptors are
ready.  Engines are passive, so a batch goes from the wire to a pipe without a task switch (one of trio's
costs 4 us, waiting for a descriptor 8 us more).

There are two ways to run (docs/decisions/0002-sleep-in-trios-place.md):

* In the application's trio run the loop is a task.  It waits for its poller's descriptor like any other task.
  Tasks of engines run meanwhile, in the same thread: what they post rings the bell (``Mailbox.poster_to``),
  and a timer that they set ends the wait in time (``set_timer``).
* In a thread of its own the loop sleeps in trio's place.  When trio has no task to run and is about to sleep,
  it calls its instruments (``before_io_wait``).  Our instrument then takes turns, and sleeps in our poller,
  which watches trio's descriptor as well.  So a message never passes through trio's scheduler.  The
  instrument returns as soon as trio has something to do: a task, a descriptor or a deadline.

Invariants: only this thread takes turns; the bell's flag ``sleeping`` is set before the last look at the
mailbox (``Mailbox.may_sleep``), and cleared after the poll; bells of other threads are rung last, because a
thread that is woken earlier would only compete for the interpreter's lock.
"""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections.abc import Callable
from threading import Lock
from typing import Any

import trio

from kernel.hosting.spinning import INTERRUPTED, Spinning
from kernel.pipes.mailbox import Mailbox
from kernel.threads.batch_scheduling import BatchScheduling, policy_chooser
from kernel.threads.poller import Blame, EpollPoller, Poller, new_poller
from kernel.threads.trio_inside import trio_inside

_TURNS_BEFORE_TRIO = 1000
"""Turns after which trio has its turn in any case."""

FOR_EVER = 3600.0
"""Seconds of the longest sleep.  Trio asks for a day at a time, and epoll refuses more than 24 days."""

_FEW_TIMERS = 1024
"""Entries of timers that count no more, beyond one for each timer, that are kept until their time."""


class Loop:
    """Mailbox, poller and timers of one thread."""

    def __init__(self, mailbox: Mailbox, *, own_thread: bool, spin: float | None = None) -> None:
        self.mailbox = mailbox
        self._spin = spin
        self._spinning = Spinning(spin)
        self._scheduling: BatchScheduling | None = None
        self.now: Callable[[], float] = trio.current_time
        """Returns the seconds of trio's clock, which is the loop's."""
        self._found = False
        """Whether a descriptor was ready since the thread last went to sleep."""
        self.poller: Poller = new_poller()
        self.poller.watch_bell(mailbox.bell)
        self._own_thread = own_thread
        self._in_trios_place = False
        self._sleep: trio.CancelScope | None = None
        """In which the loop sleeps as a task of trio's; None while it is awake, or sleeps in trio's place."""
        # A heap of (time, number, key). Entries are not removed when a timer is replaced or cancelled, which
        # would cost a search. ``_timer_of`` has the number that is valid for each key; others are skipped
        # (``next_timer``), and removed together when they are many (``set_timer``).
        self._timers: list[tuple[float, int, object]] = []
        self._timer_of: dict[object, tuple[int, Callable[[], Any], Blame]] = {}
        self._order = itertools.count()
        self.trio_ready: bool = False
        self.trio_wanted: Callable[[], int] = _always
        """How many tasks of trio's can run."""
        self.stopping: bool = False
        self.turns: int = 0
        """Turns taken so far: how often the thread was awake."""
        self._may_stop: Callable[[], bool] | None = None

    def stop(self) -> None:
        """Leave ``run`` after the present turn.  The loop's thread."""
        self.stopping = True

    def stop_when(self, may_stop: Callable[[], bool]) -> None:
        """Stop as soon as ``may_stop()`` is true; it is asked after each turn.  The loop's thread."""
        self._may_stop = may_stop

    def set_timer(self, when: float | None, callback: Callable[[], Any], key: object, blame: Blame) -> None:
        """Call at ``when``; a later call with the same key replaces an earlier one."""
        if when is None:
            self._timer_of.pop(key, None)
            return
        # Grows, so timers of the same time fire in the order in which they were set, and keys are never
        # compared.
        number = next(self._order)
        self._timer_of[key] = (number, callback, blame)
        heapq.heappush(self._timers, (when, number, key))
        # A task of the engine may set it while the loop sleeps until a later one.
        if self._sleep is not None and when < self._sleep.deadline:
            self._sleep.deadline = when
        # A timer that is an hour off may be set again with each message. On average this is a step for each
        # timer that is set.
        if len(self._timers) > 2 * len(self._timer_of) + _FEW_TIMERS:
            self._timers = [
                entry for entry in self._timers if self._timer_of.get(entry[2], (-1,))[0] == entry[1]
            ]
            heapq.heapify(self._timers)

    def lend_turn(self) -> Poller | None:
        """Return the poller, whose lock this thread holds except while it sleeps there; None if it has none.

        The loop's thread, in a turn.  A loop that is a task of trio sleeps in trio, so it has none.
        """
        poller = self.poller
        if poller.turn is None and self._in_trios_place and isinstance(poller, EpollPoller):
            turn = Lock()
            turn.acquire()
            poller.turn, poller.spin = turn, self._spin
        return None if poller.turn is None else poller

    async def run(self) -> None:
        """Take turns until stopped.  May be called again afterwards."""
        self.stopping = False
        # The clock's own method: ``trio.current_time`` looks it up in three calls more, and
        # a turn asks for it.
        self.now = trio.lowlevel.current_clock().current_time
        inside = trio_inside() if self._own_thread else None
        self._in_trios_place = inside is not None
        if inside is None:
            await self._run_as_task()
        else:
            # An epoll descriptor is readable while a descriptor in it is ready, so our poller can watch
            # trio's.
            self.poller.watch(inside.descriptor, self._trio_has_something, None, _raise)
            self.trio_wanted = inside.wanted
            # From here on bells of other threads are rung at the end of a turn.
            self.mailbox.rings = []
            choose = policy_chooser()
            self._scheduling = None if choose is None else BatchScheduling(choose)
            await _Sleeper(self).run()

    def close(self) -> None:
        """Give the descriptors back, after the last engine has gone."""
        self.mailbox.ring_all()
        # No turn will come any more: what is posted from here now has to ring at once.
        self.mailbox.rings = None
        self.poller.close()

    def _trio_has_something(self) -> None:
        self.trio_ready = True

    async def _run_as_task(self) -> None:
        bell = self.mailbox.bell
        while not self.stopping:
            if self.turn():
                # There was something to do, and there may be more. Other tasks have their turn, and then we
                # go on.
                await trio.lowlevel.checkpoint()
                continue
            # The flag is set before the last look. If there is something already, the next turn takes it
            # without sleeping.
            if self.mailbox.may_sleep():
                with trio.CancelScope(deadline=self.next_timer()) as self._sleep:
                    await trio.lowlevel.wait_readable(self.poller.fileno())
                self._sleep = None
            bell.sleeping = False

    def turn(self, timeout: float | None = 0) -> bool:
        """Do what there is to do now, a bounded amount.

        When there is nothing, wait for it up to ``timeout`` seconds.

        One system call a turn, also on the way to sleep: each gives other threads the chance to take the
        interpreter's lock away, and getting it back is what costs.  Returns whether something was done.
        """
        mailbox = self.mailbox
        bell = mailbox.bell
        self.turns += 1
        worked = False
        if mailbox.posted:
            worked = mailbox.process()
        now: float | None = None
        if self._timers:
            now = self.now()
            # The first entry may be of a timer that was replaced: then nothing is fired.
            if self._timers[0][0] <= now and self.fire_timers():
                worked = True
        if mailbox.rings:
            # Other threads have the work now, and may want this core: do not spin.
            self._found = False
            mailbox.ring_all()
            # A thread that was woken may have taken the interpreter's lock, and its answer may be here
            # already.
            if mailbox.process():
                worked = True
                # Processing may have put off bells again. Their flags say that they were rung, so nobody else
                # would ring them, and this thread may be about to sleep.
                mailbox.ring_all()
        if self._may_stop is not None and self._may_stop():
            self.stopping = True
        # Set by what was just processed. Nobody would wake this thread from the sleep below.
        if self.stopping:
            return True
        if timeout != 0:
            timeout = self._sleep_for(timeout, worked, now)
            if timeout != 0 and self._scheduling is not None:
                self._scheduling.before_sleep(self.poller.octets)
        ready = self.poller.poll(timeout)
        # After the poll, whether or not it slept: from here on posts need not ring.
        bell.sleeping = False
        self._found = self._found or ready > 0
        return ready > 0 or worked

    def _sleep_for(self, timeout: float | None, worked: bool, now: float | None) -> float | None:
        """Make ready for sleep; return for how long, 0 when there is a reason to stay awake.

        ``now``: the time at the beginning of the turn, if there are timers.
        """
        # What was processed may have made one of trio's tasks runnable: an engine's callback that sets an
        # event, for example.
        if worked and self.trio_wanted():
            return 0
        # Not after a sleep that only time has ended: then nobody is there whose next message may be near.
        if worked or self._found:
            # Work and a look take time, and what worked may have set the first timer.
            now = None
            if self._stays_awake():
                return 0
        # After the look, which may take long: this is the last one before the sleep.
        if not self.mailbox.may_sleep():
            return 0
        if self._timers:
            if now is None:
                now = self.now()
            left = self.next_timer() - now
            if left > FOR_EVER:
                left = FOR_EVER
            elif left < 0:
                left = 0
            return left if timeout is None or left < timeout else timeout
        return timeout

    def _stays_awake(self) -> bool:
        """Whether there is more work, or will be within a moment."""
        # What the engines of this thread have posted to each other says nothing about a look.
        if self.mailbox.posted:
            return True
        self._found = not self._spinning.rests() and self._something_soon()
        return self._found

    def _something_soon(self) -> bool:
        """Look for more work for a moment before sleeping: waking a core costs some 20 us."""
        # The bell's flag is not set here. A post costs its writer no system call, and is seen in ``posted``.
        poll, mailbox, spinning, clock = self.poller.poll, self.mailbox, self._spinning, time.perf_counter
        if poll(0) or mailbox.posted:
            # A thread that has work all the time need not look for it.
            spinning.in_vain()
            return True
        now = clock()
        until = spinning.until(now)
        looks = 0
        while now < until:
            if spinning.is_in_the_way(looks):
                return False
            looks += 1
            if poll(0) or mailbox.posted:
                spinning.something_came(now)
                return True
            before, now = now, clock()
            # Somebody else has had the core, or the interpreter's lock, and needs it more than this thread.
            if now - before > INTERRUPTED:
                break
        spinning.nothing_came()
        return False

    def next_timer(self) -> float:
        """When the next timer is due."""
        timers = self._timers
        while timers:
            when, number, key = timers[0]
            if self._timer_of.get(key, (None,))[0] == number:
                return when
            # Replaced or cancelled.
            heapq.heappop(timers)
        return math.inf

    def fire_timers(self) -> bool:
        """Call those that are due."""
        fired = False
        # Read once: a timer that a callback sets for the present time fires in the next turn, not in this
        # loop.
        now = self.now()
        while self.next_timer() <= now:
            _, _, key = heapq.heappop(self._timers)
            _, callback, blame = self._timer_of.pop(key)
            fired = True
            try:
                callback()
            except Exception as error:
                # Ends the engine that set the timer. Its supervisor decides what follows.
                blame(error)
        return fired


class _Sleeper(trio.abc.Instrument):
    """The instrument that sleeps in trio's place."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._over = trio.Event()
        self._error: BaseException | None = None
        self._token = trio.lowlevel.current_trio_token()

    async def run(self) -> None:
        """Keep the instrument in place until the loop stops."""
        trio.lowlevel.add_instrument(self)
        try:
            await self._over.wait()
        finally:
            trio.lowlevel.remove_instrument(self)
        if self._error is not None:
            raise self._error

    def before_io_wait(self, timeout: float) -> None:
        """Wait in trio's place, at most ``timeout`` seconds, and take turns meanwhile.

        trio calls this when it is about to wait.
        """
        # ``run`` has not been scheduled yet to remove the instrument.
        if self._over.is_set():
            return
        try:
            self._wait(timeout)
        except BaseException as error:
            # trio would log it and remove the instrument, and the thread would sleep for ever. ``run`` raises
            # it.
            self._error = error
            self._loop.stopping = True
        if self._loop.stopping:
            self._over.set()
            self._wake_trio()

    def _wait(self, timeout: float) -> None:
        loop = self._loop
        # trio has tasks that can run, and only looks for events. Take one turn, so that neither starves the
        # other.
        if timeout <= 0:
            loop.turn()
            loop.mailbox.ring_all()
            return
        # trio says a day when it has no deadline. Without a deadline a turn needs no clock.
        until = math.inf if timeout > FOR_EVER else loop.now() + timeout
        loop.trio_ready = False
        left: float | None = None
        # Limited: engines that are always busy would otherwise keep trio from its tasks and deadlines.
        for _ in range(_TURNS_BEFORE_TRIO):
            if until != math.inf:
                left = until - loop.now()
                if left <= 0:
                    break
            loop.turn(left)
            if loop.trio_ready:
                loop.mailbox.ring_all()
                # No wake-up is needed: trio's descriptor is ready, so its own wait returns at once.
                return
            if loop.stopping or loop.trio_wanted():
                break
        loop.mailbox.ring_all()
        self._wake_trio()

    def _wake_trio(self) -> None:
        """Make trio's own wait return at once.

        trio has computed how long it waits before it called us, and will wait as long after we return.
        """
        # This makes trio's descriptor readable. Idempotent: however often it is called before trio looks,
        # there is one call.
        self._token.run_sync_soon(_nothing, idempotent=True)


def _always() -> int:
    return 1


def _nothing() -> None:
    """Do nothing: the call itself wakes trio."""


def _raise(error: Exception) -> Any:
    raise error
