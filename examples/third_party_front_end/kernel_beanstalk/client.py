"""Client: one beanstalk connection on the broker.  Everything here is in the broker's thread.

A command is processed when the one before it has been answered.  Two commands may have to wait: ``put`` for
the broker's confirmation, ``reserve`` for a job.  Meanwhile the commands after them stay in the reader.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from kernel.contracts.message import Envelope, batch_of
from kernel_beanstalk.commands import Command, CommandReader
from kernel_beanstalk.options import BeanstalkOptions
from plugins.engines.broker.public import (
    Accepted,
    BrokerEngine,
    BrokerError,
    Confirms,
    Consumer,
    NotAllowed,
    Publisher,
    Receiver,
    StreamClient,
    Timer,
)

_JOBS = count(1)
"""The identifiers of jobs that this process was given."""
_BURIED = ".buried"
_SECONDS = "x-time-to-run"
"""The header that carries how long a job may be reserved."""
_LONGEST_NAME = 200


class Job:
    """A job that a client has reserved: an unacknowledged message."""

    def __init__(self, tag: int, tube: str, body: bytes, seconds: int, timer: Timer) -> None:
        self.tag = tag
        self.tube = tube
        self.body = body
        self.seconds = seconds
        self.timer = timer
        """Gives the job back when its time to run is over, or its release was delayed."""


class BeanstalkClient(StreamClient):
    """One connection."""

    def __init__(self, engine: BrokerEngine, accepted: Accepted, options: BeanstalkOptions) -> None:
        super().__init__(engine, accepted, publish_rate=options.publish_rate)
        self._reader = CommandReader(options.max_body_bytes)
        self._receiver = Receiver(self.window, self._on_deliveries, self._on_cancelled)
        self._receiver.active = False  # a job is handed over when it is asked for
        self._jobs: dict[int, Job] = {}
        self._waits_for = ""
        """``put``, ``reserve``, or nothing."""
        self._last_put = 0
        self._used = "default"
        self._publisher: Publisher | None = None
        self._entered = False
        self._reserve_timer = Timer(engine.broker, self._on_reserve_timeout)
        self._no_wait = False
        """Whether ``reserve`` is answered in this turn, with a job or without."""
        self._begin(options, loopback=accepted.loopback)

    def _begin(self, options: BeanstalkOptions, *, loopback: bool) -> None:
        login = self.engine.users.log_in(options.anonymous, loopback=loopback)
        try:
            if login is None:
                raise NotAllowed(f"user {options.anonymous!r} may not come from {self.peer}")
            vhost = self.engine.broker.vhost(options.vhost)
            login.enter(vhost.name)
            self._publisher = Publisher(vhost, login, self.engine.feed)
            self._publisher.confirms = Confirms()
            self._entered = True
            self._watch("default")
        except BrokerError as refusal:
            self.close(refusal.text)
            self.engine.finish_soon()

    # What the client asks for

    def received(self, data: bytes, now: float) -> None:
        """Take bytes, and do what is complete."""
        self._reader.feed(data)
        self._work(now)

    def _work(self, now: float) -> None:
        while not self._waits_for and not self.closing and (command := self._reader.next()) is not None:
            self._do(command, now)

    def _do(self, command: Command, now: float) -> None:
        if command.error:
            self.send(command.error)
            return
        do = _COMMANDS.get(command.name)
        if do is None:
            self.send(b"UNKNOWN_COMMAND\r\n")
            return
        try:
            do(self, command, now)
        except (ValueError, IndexError):
            self.send(b"BAD_FORMAT\r\n")
        except BrokerError:
            self.send(b"INTERNAL_ERROR\r\n")

    def _put(self, command: Command, now: float) -> None:
        delay, seconds = int(command.arguments[1]), int(command.arguments[2])
        self._last_put = next(_JOBS)
        self.messages_in += 1
        tube = self._used
        if delay:
            Timer(self.engine.broker, lambda later: self._publish(tube, command.body, seconds, later)).set(
                now + delay
            )
            self.send(b"INSERTED %d\r\n" % self._last_put)
            return
        self._publish(tube, command.body, seconds, now)
        self._waits_for = "put"

    def _publish(self, tube: str, body: bytes, seconds: int, now: float) -> None:
        self.published = True
        publisher = self._open_publisher()
        self._declare(tube)
        properties = {"headers": {_SECONDS: seconds}}
        envelope = publisher.admit(Envelope(key=tube, persistent=True, properties=properties))
        publisher.publish(batch_of([body], envelope), now)

    def _reserve(self, command: Command, now: float) -> None:
        self._no_wait = False
        if command.name == "reserve-with-timeout":
            seconds = int(command.arguments[0])
            self._no_wait = seconds == 0
            if seconds:
                self._reserve_timer.set(now + seconds)
        self._waits_for = "reserve"
        self._receiver.prefetch = self._receiver.outstanding + 1
        self._receiver.active = True
        self._receiver.wake()

    def _delete(self, command: Command, now: float) -> None:
        job = self._take_job(command)
        if job is not None:
            self._receiver.acknowledge(job.tag, job.tag, multiple=False)
            self.send(b"DELETED\r\n")

    def _release(self, command: Command, now: float) -> None:
        delay = int(command.arguments[2])
        job = self._take_job(command)
        if job is None:
            return
        if delay:
            job.timer = Timer(self.engine.broker, lambda later: self._give_back(job, later))
            job.timer.set(now + delay)
        else:
            self._give_back(job, now)
        self.send(b"RELEASED\r\n")

    def _bury(self, command: Command, now: float) -> None:
        job = self._take_job(command)
        if job is not None:
            self._publish(job.tube + _BURIED, job.body, job.seconds, now)
            self._receiver.acknowledge(job.tag, job.tag, multiple=False)
            self.send(b"BURIED\r\n")

    def _touch(self, command: Command, now: float) -> None:
        job = self._jobs.get(int(command.arguments[0]))
        if job is None:
            self.send(b"NOT_FOUND\r\n")
        else:
            job.timer.set(now + job.seconds)
            self.send(b"TOUCHED\r\n")

    def _kick(self, command: Command, now: float) -> None:
        most, kicked = int(command.arguments[0]), 0
        self._declare(self._used + _BURIED)
        buried = self._open_publisher().vhost.find_queue(self._used + _BURIED, self)
        while kicked < most and (taken := self._receiver.take_one(buried, now, auto_ack=True)) is not None:
            span = taken[1]
            body = bytes(span.as_batch().bodies[0])
            self._publish(self._used, body, _seconds_of(span.envelope), now)
            kicked += 1
        self.send(b"KICKED %d\r\n" % kicked)

    def _use(self, command: Command, now: float) -> None:
        self._used = _checked_name(command.arguments[0])
        self.send(b"USING %s\r\n" % self._used.encode("latin-1"))

    def _watch_tube(self, command: Command, now: float) -> None:
        self._watch(_checked_name(command.arguments[0]))
        self._send_watching()

    def _ignore(self, command: Command, now: float) -> None:
        consumer = self._receiver.consumers.get(_checked_name(command.arguments[0]))
        if consumer is not None and len(self._receiver.consumers) == 1:
            self.send(b"NOT_IGNORED\r\n")
            return
        if consumer is not None:
            self._open_publisher().vhost.unsubscribe(consumer, now)
        self._send_watching()

    def _list_used(self, command: Command, now: float) -> None:
        self.send(b"USING %s\r\n" % self._used.encode("latin-1"))

    def _list_watched(self, command: Command, now: float) -> None:
        text = "---\n" + "".join(f"- {name}\n" for name in self._receiver.consumers)
        self.send(b"OK %d\r\n%s\r\n" % (len(text), text.encode("latin-1")))

    def _quit(self, command: Command, now: float) -> None:
        self.close("the client quit")

    def _send_watching(self) -> None:
        self.send(b"WATCHING %d\r\n" % len(self._receiver.consumers))

    # Tubes and jobs

    def _open_publisher(self) -> Publisher:
        assert self._publisher is not None, "a client that was refused asks for nothing"
        return self._publisher

    def _declare(self, tube: str) -> None:
        vhost, login = self._open_publisher().vhost, self._open_publisher().login
        if tube not in vhost.queues:
            login.require("configure", "queue", tube, vhost.name)
            vhost.declare_queue(tube, None, self.host.now(), durable=True)

    def _watch(self, tube: str) -> None:
        if tube in self._receiver.consumers:
            return
        self._declare(tube)
        vhost, login = self._open_publisher().vhost, self._open_publisher().login
        login.require("read", "queue", tube, vhost.name)
        queue = vhost.find_queue(tube, self)
        consumer = Consumer(
            tube, queue, self._receiver, auto_ack=False, exclusive=False, prefetch=0, arguments={}
        )
        vhost.subscribe(consumer, self.host.now())

    def _take_job(self, command: Command) -> Job | None:
        """Return a job that this connection has reserved, which it then has no more."""
        job = self._jobs.pop(int(command.arguments[0]), None)
        if job is None:
            self.send(b"NOT_FOUND\r\n")
        else:
            job.timer.cancel()
        return job

    def _give_back(self, job: Job, now: float) -> None:
        if not self._ended:
            self._receiver.reject(job.tag, job.tag, multiple=False, requeue=True, now=now)
            self.engine.finish_soon()

    def _on_overdue(self, job_id: int, now: float) -> None:
        job = self._jobs.pop(job_id, None)
        if job is not None:
            self._give_back(job, now)

    def _on_reserve_timeout(self, now: float) -> None:
        if self._waits_for == "reserve":
            self._no_wait = True
            self.engine.is_busy(self)
            self.engine.finish_soon()

    def _on_deliveries(self) -> None:
        self.engine.is_busy(self)

    def _on_cancelled(self, consumer: Consumer) -> None:
        """Somebody has deleted the queue: the tube is not watched any more."""

    # The end of a turn

    def flush(self, now: float) -> None:
        """Answer what waits, and go on with the commands behind it."""
        if self._waits_for == "put":
            self._answer_put()
        elif self._waits_for == "reserve":
            self._answer_reserve(now)
        if not self._waits_for:
            self._work(now)
            if self._waits_for:  # what that asks for comes in a turn of its own
                self.engine.is_busy(self)
                self.engine.finish_soon()

    def _answer_put(self) -> None:
        publisher = self._open_publisher()
        confirms, store = publisher.confirms, publisher.vhost.store
        assert confirms is not None
        accepted = True
        for outcome in confirms.outcomes(publisher.feed.confirmed, store.safe):
            accepted = outcome.accepted
        if confirms.told < confirms.published:
            store.when_safe(self._on_deliveries)
            return
        self._waits_for = ""
        self.send(b"INSERTED %d\r\n" % self._last_put if accepted else b"OUT_OF_MEMORY\r\n")

    def _answer_reserve(self, now: float) -> None:
        deliveries = self._receiver.take_deliveries()
        if not deliveries:
            if self._no_wait:
                self._end_reserve()
                self.send(b"TIMED_OUT\r\n")
            return
        self._end_reserve()
        ((consumer, tag, span),) = deliveries
        body = bytes(span.as_batch().bodies[0])
        number = next(_JOBS)
        seconds = _seconds_of(span.envelope)
        timer = Timer(self.engine.broker, lambda later: self._on_overdue(number, later))
        timer.set(now + seconds)
        self._jobs[number] = Job(tag, consumer.tag, body, seconds, timer)
        self.messages_out += 1
        self.send(b"RESERVED %d %d\r\n%s\r\n" % (number, len(body), body))

    def _end_reserve(self) -> None:
        self._waits_for = ""
        self._receiver.active = False
        self._reserve_timer.cancel()

    @property
    def confirming(self) -> bool:
        """Whether a ``put`` waits for its answer."""
        return self._waits_for == "put"

    @property
    def unacked_bytes(self) -> int:
        """About how many bytes the jobs have that are reserved."""
        return self._receiver.unacked.estimated_size()

    _ended = False

    def ended(self, now: float) -> None:
        """The connection is over: what is reserved goes back to its tubes."""
        self._ended = True
        self._reserve_timer.cancel()
        for job in self._jobs.values():
            job.timer.cancel()
        publisher = self._publisher
        if publisher is None or not self._entered:
            return
        for consumer in list(self._receiver.consumers.values()):
            publisher.vhost.unsubscribe(consumer, now)
        self._receiver.take_deliveries()
        self._receiver.recover()
        publisher.login.leave()
        publisher.vhost.release(self, now)

    def inspect(self, what: str) -> list[dict[str, Any]]:
        """Return rows for an operator."""
        publisher = self._publisher
        if what != "connections" or publisher is None:
            return []
        return [self.row(user=publisher.login.name, vhost=publisher.vhost.name, client="beanstalk")]


def _seconds_of(envelope: Envelope) -> int:
    """Return how long a job may be reserved; at least a second, as in beanstalkd."""
    headers = envelope.properties.get("headers") or {}
    seconds = headers.get(_SECONDS, 60)
    return max(1, seconds) if isinstance(seconds, int) else 60


def _checked_name(name: str) -> str:
    if not name or len(name) > _LONGEST_NAME or name.startswith("amq."):
        raise ValueError(name)
    return name


_COMMANDS: dict[str, Callable[[BeanstalkClient, Command, float], None]] = {
    "bury": BeanstalkClient._bury,
    "delete": BeanstalkClient._delete,
    "ignore": BeanstalkClient._ignore,
    "kick": BeanstalkClient._kick,
    "list-tube-used": BeanstalkClient._list_used,
    "list-tubes-watched": BeanstalkClient._list_watched,
    "put": BeanstalkClient._put,
    "quit": BeanstalkClient._quit,
    "release": BeanstalkClient._release,
    "reserve": BeanstalkClient._reserve,
    "reserve-with-timeout": BeanstalkClient._reserve,
    "touch": BeanstalkClient._touch,
    "use": BeanstalkClient._use,
    "watch": BeanstalkClient._watch_tube,
}
