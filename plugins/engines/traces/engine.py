"""The engine ``traces``: spans for messages that pass.

With routes that begin here it hands on what it takes.  A message whose publisher is traced then has the
context of the span in place of the publisher's, so that whoever gets it continues the trace from here.
Without such routes it only looks, and messages stay as they are.

The SDK of OpenTelemetry has the rest: it decides nothing about sampling, since the publisher has, and exports
spans in batches in a thread of its own.  If the collector is away, it drops spans, and says so in the log.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import trio
from msgspec.structs import replace
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased
from opentelemetry.trace import Span, SpanKind, Tracer, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from kernel.contracts.engine import Host, Port, Taken
from kernel.contracts.message import Batch, Envelope
from kernel.contracts.properties import changed
from kernel.hosting.in_thread import in_thread
from plugins.engines.traces.options import TracesOptions

_MOST_A_TURN = 1000
"""Messages of one turn.  A span costs some 20 µs, and other engines of the thread have
their turn in between."""

_STATE = "tracestate"

_LAST = 1.0
"""Seconds that the last export may take at least."""


class TracesEngine:
    """Makes spans of what routes bring.  All methods but ``statistics`` run in the engine's thread."""

    def __init__(self, name: str, options: TracesOptions, exporter: SpanExporter | None = None) -> None:
        """``exporter``: another one than that for OTLP over HTTP."""
        self._name = name
        self._options = options
        self._exporter = exporter
        self._port: Port | None = None
        self._host: Host | None = None
        self._tracer: Tracer | None = None
        self._propagator = TraceContextTextMapPropagator()
        self._messages = self._handed_on = self._spans = 0
        self._may_send = True
        self._unconfirmed: deque[_HandedOn] = deque()

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        """Run until cancelled; spans that were made by then are exported."""
        resource = Resource.create({SERVICE_NAME: self._options.service_name})
        # The publisher has decided whether its trace is sampled.
        provider = TracerProvider(resource=resource, sampler=ParentBased(ALWAYS_ON), shutdown_on_exit=False)
        exporter = self._exporter or self._otlp()
        provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = provider.get_tracer("messaging-kernel")
        self._host = host
        self._port = host.port(self._name, self)
        task_status.started(self._options.endpoint)
        try:
            await trio.sleep_forever()
        finally:
            # A span that was never ended is not exported at all. These end with what is known: the messages
            # were handed on.
            for handed_on in self._unconfirmed:
                handed_on.end()
            # In a thread: it waits for the collector, which may be slow or away.
            await in_thread(_end, provider, exporter, max(host.linger_left(), _LAST))
            self._port = None

    def pending(self) -> bool:
        """Return False: spans that were made are the affair of the exporter."""
        return False

    def statistics(self) -> dict[str, Any]:
        """Return the engine's counters.  Any thread."""
        return {"messages_in": self._messages, "messages_out": self._handed_on, "spans": self._spans}

    def on_output(self) -> None:
        """Make spans of what has come, and hand it on if a route begins here."""
        port, host = self._port, self._host
        if port is None or host is None or not self._may_send:
            return
        taken = port.take(_MOST_A_TURN)
        if not taken.batches:
            return
        self._messages += taken.count
        # One ``take`` reads one pipe, so all of these have one source.
        source = port.origin[0]
        # Asked each time: a route may begin here, or end, while the engine runs.
        if port.routes:
            self._hand_on(port, taken, source)
        else:
            _end_all(
                span for batch in taken.batches if (span := self._begin(batch, source, SpanKind.CONSUMER))
            )
            port.confirm_through(taken.position)
        if port.has_input():
            host.soon(self.on_output)

    def on_writable(self) -> None:
        """Go on: the pipes take more."""
        self._may_send = True
        self.on_output()

    def on_confirmed(self, position: int) -> None:
        """Confirm what all destinations have confirmed: the spans of these messages end now."""
        taken: int | None = None
        while self._unconfirmed and self._unconfirmed[0].sent <= position:
            handed_on = self._unconfirmed.popleft()
            handed_on.end()
            # None: nobody waits for these.
            taken = handed_on.taken or taken
        if self._port is not None:
            self._port.confirm_through(taken)

    def _hand_on(self, port: Port, taken: Taken, source: str) -> None:
        spans, batches = [], []
        for batch in taken.batches:
            span = self._begin(batch, source, SpanKind.PRODUCER)
            if span is None:
                batches.append(batch)
            else:
                spans.append(span)
                batches.append(batch.under(self._continued(batch.envelope, span)))
        self._may_send = port.send(batches)
        self._handed_on += taken.count
        handed_on = _HandedOn(port.sent(), taken.position, spans)
        if port.confirms:
            self._unconfirmed.append(handed_on)
        else:
            handed_on.end()
            port.confirm_through(taken.position)

    def _continued(self, envelope: Envelope, span: Span) -> Envelope:
        """Return the envelope with the span as parent.

        ``tracestate`` stays: the span has the publisher's.
        """
        name, carrier = self._options.header, dict[str, str]()
        self._propagator.inject(carrier, set_span_in_context(span))
        context, properties = carrier["traceparent"], envelope.properties
        pairs = properties.get("user_properties") or ()
        changes, headers = {}, {}
        if any(each == name for each, _ in pairs):
            changes["user_properties"] = tuple(
                (each, context if each == name else value) for each, value in pairs
            )
        if name in (properties.get("headers") or {}):
            headers[name] = context
        return replace(envelope, properties=changed(properties, changes, headers=headers))

    def _begin(self, batch: Batch, source: str, kind: SpanKind) -> Span | None:
        """Begin the span of a batch; None: its publisher is not traced."""
        envelope = batch.envelope
        headers = _headers(envelope)
        parent = headers.get(self._options.header)
        if not isinstance(parent, str | bytes):
            return None
        carrier = {"traceparent": _text(parent), _STATE: _text(headers.get(_STATE, ""))}
        context = self._propagator.extract(carrier)
        # A text that is no context, or a trace that is not sampled.
        if not get_current_span(context).get_span_context().trace_flags.sampled:
            return None
        assert self._tracer is not None, "it runs"
        attributes: dict[str, str | int] = {
            "messaging.system": "messaging-kernel",
            "messaging.operation.name": "route",
            "messaging.destination.name": envelope.exchange or envelope.key,
            "messaging.rabbitmq.destination.routing_key": envelope.key,
            "messaging.batch.message_count": len(batch.bodies),
            "messaging.message.body.size": batch.size,
            "messaging.client.id": source,
        }
        self._spans += 1
        return self._tracer.start_span(f"route {source}", context=context, kind=kind, attributes=attributes)

    def _otlp(self) -> SpanExporter:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        return OTLPSpanExporter(endpoint=self._options.endpoint or None)


class _HandedOn(NamedTuple):
    """What was taken at once, and handed on."""

    sent: int
    """The position of the last of these messages where they are sent."""
    taken: int | None
    """The same where they were taken."""
    spans: list[Span]

    def end(self) -> None:
        """End the spans: the messages are confirmed."""
        _end_all(self.spans)


def _end_all(spans: Iterable[Span]) -> None:
    for span in spans:
        span.end()


def _end(provider: TracerProvider, exporter: SpanExporter, seconds: float) -> None:
    """Export what is left; give up after some seconds, and after a connection attempt that is under way."""
    timer = threading.Timer(seconds, exporter.shutdown)
    timer.start()
    provider.shutdown()
    timer.cancel()
    timer.join()


def _headers(envelope: Envelope) -> Mapping[str, Any]:
    """Return the headers, or MQTT's user properties, in which the last of a name counts."""
    properties = envelope.properties or {}
    return {**(properties.get("headers") or {}), **dict(properties.get("user_properties") or ())}


def _text(value: object) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)
