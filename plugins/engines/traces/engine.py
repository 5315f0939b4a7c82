"""The engine ``traces``: spans for messages that pass.

The SDK of OpenTelemetry has the rest: it decides nothing about sampling, since the publisher has, and exports spans in
batches in a thread of its own.  If the collector is away, it drops spans, and says so in the log.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import trio
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased
from opentelemetry.trace import SpanKind, Tracer, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from kernel.contracts.engine import Host, Port
from kernel.contracts.message import Batch, Envelope
from kernel.hosting.in_thread import in_thread
from plugins.engines.traces.options import TracesOptions

_MOST_A_TURN = 1000
"""Messages of one turn.  A span costs some 20 µs, and other engines of the thread have their turn in between."""

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
        self._messages = self._spans = 0

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
            # In a thread: it waits for the collector, which may be slow or away.
            await in_thread(_end, provider, exporter, max(host.linger_left(), _LAST))
            self._port = None

    def pending(self) -> bool:
        """Return False: spans that were made are the affair of the exporter."""
        return False

    def statistics(self) -> dict[str, Any]:
        """Return the engine's counters.  Any thread."""
        return {"messages_in": self._messages, "spans": self._spans}

    def on_output(self) -> None:
        """Make spans of what has come."""
        port, host = self._port, self._host
        if port is None or host is None:
            return
        taken = port.take(_MOST_A_TURN)
        for batch in taken.batches:
            self._messages += len(batch.bodies)
            self._span(batch, port.origin[0])
        port.confirm_through(taken.position)
        if port.has_input():
            host.soon(self.on_output)

    def on_writable(self) -> None:
        """Do nothing: nothing is sent from here."""

    def on_confirmed(self, position: int) -> None:
        """Do nothing: nothing is sent from here."""

    def _span(self, batch: Batch, source: str) -> None:
        envelope = batch.envelope
        headers = _headers(envelope)
        parent = headers.get(self._options.header)
        if not isinstance(parent, str | bytes):
            return
        carrier = {"traceparent": _text(parent), _STATE: _text(headers.get(_STATE, ""))}
        context = self._propagator.extract(carrier)
        # A text that is no context, or a trace that is not sampled.
        if not get_current_span(context).get_span_context().trace_flags.sampled:
            return
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
        span = self._tracer.start_span(
            f"route {source}", context=context, kind=SpanKind.CONSUMER, attributes=attributes
        )
        span.end()
        self._spans += 1

    def _otlp(self) -> SpanExporter:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        return OTLPSpanExporter(endpoint=self._options.endpoint or None)


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
