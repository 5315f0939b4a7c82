"""Spans for messages that pass, in memory and at a collector that OTLP's own classes decode."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kernel import EnginePlan, Envelope, Kernel, Message, RoutePlan
from kernel.cli.main import run
from kernel.contracts.errors import PlanError, TimedOut
from kernel.pipes.water_marks import WaterMarks
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


def parent_of(context: str) -> tuple[str, str]:
    """The trace and the parent of a ``traceparent``, as W3C writes them."""
    version, trace, parent, flags = context.split("-")
    assert (version, flags) == ("00", "01")
    return trace, parent


@pytest.fixture
def handed_on(kernel_factory: KernelFactory) -> tuple[Kernel, dict[str, InMemorySpanExporter]]:
    """``app`` sends through two engines that trace to ``end``; each has the spans of its own."""
    exporters = {"first": InMemorySpanExporter(), "second": InMemorySpanExporter()}
    kernel = kernel_factory(EnginePlan(name="app", kind="native"), EnginePlan(name="end", kind="native"))
    for name in exporters:
        kernel.host(name, lambda setup: TracesEngine(setup.name, TracesOptions(), exporters[setup.name]))
    for source, target in (("app", "first"), ("first", "second"), ("second", "end")):
        kernel.add_route(RoutePlan(source=source, targets=(target,), confirm=True))
    kernel.wait_running()
    return kernel, exporters


def test_what_is_handed_on_continues_the_trace(
    handed_on: tuple[Kernel, dict[str, InMemorySpanExporter]],
) -> None:
    kernel, exporters = handed_on
    plain, other = Envelope(key="k"), traced(traceparent=NOT_SAMPLED)
    sent = traced(traceparent=SAMPLED, tracestate="vendor=x", mine=7)
    pairs = Envelope(properties={"user_properties": (("a", "b"), ("traceparent", SAMPLED), ("a", "c"))})
    with kernel.open("app") as app, kernel.open("end") as end:
        for envelope in (sent, plain, other, pairs):
            app.send_message(Message(b"body", envelope))
        got = [end.receive_message(timeout=TIMEOUT) for _ in range(4)]
        assert [message.body for message in got] == [b"body"] * 4
        end.confirm()
        app.wait_confirmed(timeout=TIMEOUT)
    kernel.close()
    kernel.join()
    spans = {name: exporter.get_finished_spans() for name, exporter in exporters.items()}
    assert {name: len(each) for name, each in spans.items()} == {"first": 2, "second": 2}
    for number, envelope in enumerate((got[0].envelope, got[3].envelope)):
        first, second = (spans[name][number] for name in exporters)
        assert (first.name, second.name) == ("route app", "route first")
        assert first.parent is not None
        assert second.parent is not None
        # Publisher, first hand-over, second hand-over, receiver: each is the parent of the next.
        assert f"{first.parent.span_id:016x}" == PARENT
        assert second.parent.span_id == first.context.span_id
        headers = {
            **envelope.properties.get("headers", {}),
            **dict(envelope.properties.get("user_properties", ())),
        }
        assert parent_of(headers["traceparent"]) == (TRACE, f"{second.context.span_id:016x}")
    assert got[0].envelope.properties["headers"]["tracestate"] == "vendor=x"
    assert got[0].envelope.properties["headers"]["mine"] == 7
    assert (got[0].envelope.exchange, got[0].envelope.key) == ("feed", "a.b")
    assert [pair for pair in got[3].envelope.properties["user_properties"] if pair[0] == "a"] == [
        ("a", "b"),
        ("a", "c"),
    ]
    # Who is not traced keeps his messages as they are.
    assert got[1].envelope is plain
    assert got[2].envelope is other


def test_a_span_lasts_until_the_next_has_confirmed(
    handed_on: tuple[Kernel, dict[str, InMemorySpanExporter]],
) -> None:
    kernel, exporters = handed_on
    with kernel.open("app") as app, kernel.open("end", auto_confirm=False) as end:
        app.send_message(Message(b"body", traced(traceparent=SAMPLED)))
        end.receive_message(timeout=TIMEOUT)
        until(lambda: _handed_on(kernel) == {"first": 1, "second": 1})
        with pytest.raises(TimedOut):
            app.wait_confirmed(timeout=0)
        end.confirm()
        app.wait_confirmed(timeout=TIMEOUT)
    kernel.close()
    kernel.join()
    (first,), (second,) = (exporter.get_finished_spans() for exporter in exporters.values())
    assert first.start_time is not None
    assert second.end_time is not None
    assert first.start_time <= (second.start_time or 0) <= second.end_time <= (first.end_time or 0)


def _handed_on(kernel: Kernel) -> dict[str, int]:
    return {
        each.name: each.counters.get("messages_out", 0)
        for each in kernel.statistics().engines
        if "spans" in each.counters
    }


def test_a_full_destination_holds_up_who_hands_on(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(EnginePlan(name="app", kind="native"), EnginePlan(name="end", kind="native"))
    kernel.host("traces", lambda setup: TracesEngine(setup.name, TracesOptions(), InMemorySpanExporter()))
    marks = WaterMarks(high=10)
    for source, target in (("app", "traces"), ("traces", "end")):
        kernel.add_route(RoutePlan(source=source, targets=(target,), marks=marks))
    kernel.wait_running()

    def send_all() -> None:
        with kernel.open("app") as app:
            for number in range(100):
                app.send_message(Message(b"%d" % number, traced(traceparent=SAMPLED)))

    sender = threading.Thread(target=send_all)
    with kernel.open("end") as end:
        sender.start()
        got = [end.receive_message(timeout=TIMEOUT).body for _ in range(100)]
    sender.join(TIMEOUT)
    assert got == [b"%d" % n for n in range(100)]


def test_a_broker_hands_on_to_the_next(kernel_factory: KernelFactory) -> None:
    exporter = InMemorySpanExporter()
    kernel = kernel_factory(EnginePlan(name="one", kind="broker"), EnginePlan(name="two", kind="broker"))
    kernel.host("traces", lambda setup: TracesEngine(setup.name, TracesOptions(), exporter))
    kernel.add_route(RoutePlan(source="one", targets=("traces",), confirm=True))
    kernel.add_route(RoutePlan(source="traces", targets=("two",), confirm=True))
    kernel.wait_running()
    with (
        kernel.open("sender", "broker-client", broker="one") as sender,
        kernel.open("getter", "broker-client", broker="two") as getter,
    ):
        getter.declare_queue("q")
        getter.bind("q", "amq.topic", "#")
        sender.publish(
            b"x", Envelope(exchange="amq.topic", key="a", properties={"headers": {"traceparent": SAMPLED}})
        )
        sender.wait_confirmed(TIMEOUT)
        got = getter.get("q", auto_ack=True)
        assert got is not None
    kernel.close()
    kernel.join()
    (span,) = exporter.get_finished_spans()
    assert parent_of(got.envelope.properties["headers"]["traceparent"]) == (
        TRACE,
        f"{span.context.span_id:016x}",
    )


BETWEEN = """
[engines.app]
kind = "native"
[engines.traces]
kind = "traces"
[engines.end]
kind = "native"
[[routes]]
from = "app"
to = "traces"
confirm = true
[[routes]]
from = "traces"
to = "end"
confirm = true
"""


def test_one_that_hands_on_is_a_destination_like_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan_of_text(BETWEEN, PluginRegistry.load())
    file = tmp_path / "between.toml"
    file.write_text(BETWEEN)
    assert run(["prove", str(file)]) == 0
    proved = capsys.readouterr().out
    assert "traces" in proved
    assert "it confirms when its own routes have" in proved


def test_a_rehearsal_passes_through_and_makes_no_spans(
    kernel_factory: KernelFactory, collector: _Collector, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyarrow")
    journal = tmp_path / "journal"
    kernel = kernel_factory(
        EnginePlan(name="app", kind="native"),
        EnginePlan(name="log", kind="journal", options={"path": str(journal)}),
        RoutePlan(source="app", targets=("log",), confirm=True),
    )
    send(kernel, *[traced(traceparent=SAMPLED)] * 3)
    file = tmp_path / "new.toml"
    endpoint = f"http://127.0.0.1:{collector.server_port}/v1/traces"
    file.write_text(BETWEEN.replace('kind = "traces"', f'kind = "traces"\nendpoint = "{endpoint}"'))
    assert run(["rehearse", str(file), "--with", str(journal), "--json"]) == 0
    [got] = json.loads(capsys.readouterr().out)["new"]["got"]["end"]
    assert (got["key"], got["messages"]) == ("a.b", 3)
    assert collector.came.empty()
