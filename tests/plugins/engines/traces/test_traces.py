"""Spans for messages that pass, in memory and at a collector that OTLP's own classes decode."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from queue import SimpleQueue
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kernel import EnginePlan, Envelope, Kernel, Message, RoutePlan
from kernel.contracts.errors import PlanError
from kernel.plugins import PluginRegistry
from kernel.testing.fixtures import KernelFactory, kernel_factory, plan_of_text
from plugins.engines.traces.engine import TracesEngine
from plugins.engines.traces.options import TracesOptions
from tests.interop.until import until

__all__ = ["kernel_factory"]

TIMEOUT = 60.0
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED, NOT_SAMPLED = f"00-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-00"


def traced(**headers: Any) -> Envelope:
    return Envelope(exchange="feed", key="a.b", properties={"headers": headers})


@pytest.fixture
def spans(kernel_factory: KernelFactory) -> tuple[Kernel, InMemorySpanExporter]:
    """A kernel whose application ``app`` is traced; spans are there when it has been closed."""
    exporter = InMemorySpanExporter()
    kernel = kernel_factory(EnginePlan(name="app", kind="native"))
    kernel.host("traces", lambda setup: TracesEngine(setup.name, TracesOptions(), exporter))
    kernel.add_route(RoutePlan(source="app", targets=("traces",), router="tap", confirm=True))
    kernel.wait_running()
    return kernel, exporter


def send(kernel: Kernel, *envelopes: Envelope) -> None:
    with kernel.open("app") as app:
        for envelope in envelopes:
            app.send_message(Message(b"body", envelope))
        app.wait_confirmed(timeout=TIMEOUT)
    kernel.close()
    kernel.join()


def test_a_span_continues_the_publishers_trace(spans: tuple[Kernel, InMemorySpanExporter]) -> None:
    kernel, exporter = spans
    send(kernel, traced(traceparent=SAMPLED, tracestate="vendor=x"))
    (span,) = exporter.get_finished_spans()
    assert span.name == "route app"
    assert f"{span.context.trace_id:032x}" == TRACE
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == PARENT
    assert span.parent.is_remote
    assert span.context.trace_state.get("vendor") == "x"
    assert dict(span.attributes or {}) == {
        "messaging.system": "messaging-kernel",
        "messaging.operation.name": "route",
        "messaging.destination.name": "feed",
        "messaging.rabbitmq.destination.routing_key": "a.b",
        "messaging.batch.message_count": 1,
        "messaging.message.body.size": 4,
        "messaging.client.id": "app",
    }
    assert span.resource.attributes["service.name"] == "messaging-kernel"


@pytest.mark.parametrize(
    "envelope",
    [
        Envelope(key="k"),
        traced(other="x"),
        traced(traceparent=NOT_SAMPLED),
        traced(traceparent="00-nonsense"),
        traced(traceparent=12),
        traced(traceparent="00-" + "0" * 32 + f"-{PARENT}-01"),
    ],
)
def test_what_is_not_traced_makes_no_span(
    spans: tuple[Kernel, InMemorySpanExporter], envelope: Envelope
) -> None:
    kernel, exporter = spans
    send(kernel, envelope)
    assert not exporter.get_finished_spans()


@pytest.mark.parametrize(
    "properties",
    [
        {"headers": {"traceparent": SAMPLED.encode()}},
        {"user_properties": (("traceparent", "x"), ("traceparent", SAMPLED))},
    ],
)
def test_octets_and_user_properties_of_mqtt(
    spans: tuple[Kernel, InMemorySpanExporter], properties: dict[str, Any]
) -> None:
    kernel, exporter = spans
    send(kernel, Envelope(key="k", properties=properties))
    (span,) = exporter.get_finished_spans()
    assert f"{span.context.trace_id:032x}" == TRACE


class _Collector(HTTPServer):
    """Takes what exporters send by OTLP over HTTP."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.came: SimpleQueue[ExportTraceServiceRequest] = SimpleQueue()


class _Handler(BaseHTTPRequestHandler):
    server: _Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            import gzip

            body = gzip.decompress(body)
        assert self.path == "/v1/traces"
        self.server.came.put(ExportTraceServiceRequest.FromString(body))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def collector() -> Iterator[_Collector]:
    with _Collector() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_what_a_broker_is_given_reaches_a_collector(
    kernel_factory: KernelFactory, collector: _Collector
) -> None:
    endpoint = f"http://127.0.0.1:{collector.server_port}/v1/traces"
    kernel = kernel_factory(
        EnginePlan(name="broker", kind="broker"),
        EnginePlan(name="traces", kind="traces", options={"endpoint": endpoint, "service_name": "orders"}),
        RoutePlan(source="broker", targets=("traces",), router="tap"),
    )
    with kernel.open("client", "broker-client", broker="broker") as client:
        client.declare_queue("q")
        client.publish(b"x", Envelope(key="q", properties={"headers": {"traceparent": SAMPLED}}))
        client.wait_confirmed(TIMEOUT)
        # Headers are the publisher's, as the consumer sees them.
        got = client.get("q", auto_ack=True)
        assert got is not None
        assert got.envelope.properties == {"headers": {"traceparent": SAMPLED}}
    until(lambda: any(engine.counters.get("spans") for engine in kernel.statistics().engines))
    kernel.close()
    kernel.join()
    (resource,) = collector.came.get(timeout=TIMEOUT).resource_spans
    (span,) = resource.scope_spans[0].spans
    assert (span.trace_id.hex(), span.parent_span_id.hex(), span.name) == (TRACE, PARENT, "route broker")
    names = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert names["service.name"] == "orders"


def test_a_collector_that_is_away_holds_up_nobody(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(
        EnginePlan(name="app", kind="native"),
        EnginePlan(name="traces", kind="traces", options={"endpoint": "http://127.0.0.1:1/v1/traces"}),
        RoutePlan(source="app", targets=("traces",), router="tap", confirm=True),
    )
    with kernel.open("app") as app:
        for _ in range(100):
            app.send_message(Message(b"x", traced(traceparent=SAMPLED)))
        app.wait_confirmed(timeout=TIMEOUT)


def test_a_route_that_would_hold_up_its_source_is_a_mistake() -> None:
    text = '[engines.app]\nkind = "native"\n[engines.traces]\nkind = "traces"\n[[routes]]\nfrom = "app"\nto = "traces"\n'
    with pytest.raises(PlanError, match='has to have router = "tap"'):
        plan_of_text(text, PluginRegistry.load())
    plan_of_text(text + 'router = "tap"\n', PluginRegistry.load())
