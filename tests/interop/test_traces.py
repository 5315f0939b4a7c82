"""Traces of publishers of others, as pika, paho and stomp.py put them into headers and user properties."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kernel import EnginePlan, Kernel, RoutePlan
from kernel.testing.fixtures import KernelFactory, kernel_factory
from plugins.engines.traces.engine import TracesEngine
from plugins.engines.traces.options import TracesOptions
from tests.interop.until import until
from tests.peers import optional
from tests.ports import free_port

__all__ = ["kernel_factory"]

pika: Any = optional("pika")
mqtt: Any = optional("paho.mqtt.client")
stomp: Any = optional("stomp")

TRACES = {protocol: f"{number:032x}" for number, protocol in enumerate(("amqp", "mqtt", "stomp"), 1)}


def context(protocol: str) -> str:
    return f"00-{TRACES[protocol]}-b7ad6b7169203331-01"


def by_amqp(port: int) -> None:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    properties = pika.BasicProperties(headers={"traceparent": context("amqp")})
    connection.channel().basic_publish("amq.topic", "a.b", b"x", properties)
    connection.close()


def by_mqtt(port: int) -> None:
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    client.username_pw_set("guest", "guest")
    client.connect("127.0.0.1", port)
    client.loop_start()
    properties = mqtt.Properties(mqtt.PacketTypes.PUBLISH)
    properties.UserProperty = [("traceparent", context("mqtt"))]
    client.publish("a/b", b"x", qos=1, properties=properties).wait_for_publish(60)
    client.disconnect()
    client.loop_stop()


def by_stomp(port: int) -> None:
    connection = stomp.Connection12([("127.0.0.1", port)], vhost="/")
    connection.connect("guest", "guest", wait=True)
    connection.send("/topic/a.b", "x", headers={"traceparent": context("stomp")})
    connection.disconnect()


@pytest.mark.peer("pika")
@pytest.mark.peer("paho-mqtt")
@pytest.mark.peer("stomp-py")
def test_each_protocols_headers_continue_the_trace(kernel_factory: KernelFactory) -> None:
    ports = {protocol: free_port() for protocol in TRACES}
    listeners = [{"protocol": protocol, "address": f"127.0.0.1:{port}"} for protocol, port in ports.items()]
    exporter = InMemorySpanExporter()
    kernel = kernel_factory(EnginePlan(name="broker", kind="broker", options={"listeners": listeners}))
    kernel.host("traces", lambda setup: TracesEngine(setup.name, TracesOptions(), exporter))
    kernel.add_route(RoutePlan(source="broker", targets=("traces",), router="tap"))
    kernel.wait_running()
    for protocol, publish in (("amqp", by_amqp), ("mqtt", by_mqtt), ("stomp", by_stomp)):
        publish(ports[protocol])
    until(lambda: _spans(kernel) == len(TRACES))
    kernel.close()
    kernel.join()
    spans = exporter.get_finished_spans()
    assert sorted(f"{span.context.trace_id:032x}" for span in spans) == sorted(TRACES.values())
    assert {(span.attributes or {})["messaging.rabbitmq.destination.routing_key"] for span in spans} == {
        "a.b"
    }


def _spans(kernel: Kernel) -> int:
    found: int = sum(each.counters.get("spans", 0) for each in kernel.statistics().engines)
    return found
