"""What Prometheus reads: all figures, by names that keep its rules, whatever clients call their queues."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from kernel import KernelError
from kernel.contracts.message import Envelope
from kernel.plugins import PluginRegistry
from kernel.testing.fixtures import KernelFactory
from kernel.testing.memory_wire import SimulatedHost
from kernel.topology.plan import EnginePlan, RoutePlan
from tests.interop.until import until
from tests.peers import optional
from tests.plugins.engines.web.pages import THREADS, get, watched, web

pytestmark = pytest.mark.peer("prometheus-client")

if optional("prometheus_client") is not None:
    from prometheus_client import generate_latest
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.parser import text_string_to_metric_families

    from plugins.engines.web.answer import Answer
    from plugins.engines.web.families import OneFamily
    from plugins.engines.web.metrics_page import MetricsPage
    from plugins.engines.web.queue_lines import escaped, queue_lines

HOSTILE = [
    "plain",
    'quote"',
    "back\\slash",
    "new\nline",
    "return\r",
    "nul\x00",
    '"} 1\nkernel_engine_up{engine="forged',
    "umläut \u2028 \U0001f431",
    "<script>alert(1)</script>",
    "\\",
    "\\n",
    "{}",
    "no UTF-8 \udc80\udcff",
    "x" * 255,
]
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def _read(page: bytes) -> Samples:
    """Parse a page as a client of Prometheus' format does; no sample may be there twice."""
    found: Samples = {}
    for family in text_string_to_metric_families(page.decode()):
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


def _one(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, tuple(sorted(labels.items()))]


def _queues(names: list[str]) -> dict[str, Any]:
    queue = dict.fromkeys(
        ["messages_ready", "bytes_ready", "messages_outstanding", "messages_in", "messages_out", "consumers"],
        0,
    )
    queues = {name: {**queue, "messages_ready": number} for number, name in enumerate(names)}
    return {"vhosts": {"/": {"queues": queues}}}


def test_queues_have_their_figures(kernel_factory: KernelFactory) -> None:
    kernel = watched(kernel_factory, queues=[{"name": "orders"}, {"name": "empty"}])
    kernel.add_engine(EnginePlan(name="app", kind="broker-client", options={"broker": "broker"}))
    with kernel.open("app") as client:
        for _ in range(3):
            client.publish(b"four", Envelope(key="orders"))
        got = client.get("orders")
        assert got is not None
        samples = _read(get(kernel, "/metrics", "guest:guest").body)
    orders = {"engine": "broker", "vhost": "/", "queue": "orders"}
    assert _one(samples, "kernel_queue_messages_ready", **orders) == 2
    assert _one(samples, "kernel_queue_messages_unacked", **orders) == 1
    assert _one(samples, "kernel_queue_ready_bytes", **orders) == 8
    assert _one(samples, "kernel_queue_messages_in_total", **orders) == 3
    assert _one(samples, "kernel_queue_messages_ready", **{**orders, "queue": "empty"}) == 0
    assert _one(samples, "rabbitmq_queue_messages_ready") == 2
    assert _one(samples, "rabbitmq_queue_messages_unacked") == 1
    assert _one(samples, "rabbitmq_queue_messages") == 3
    assert _one(samples, "rabbitmq_queues") == 2


def test_the_overview_of_rabbitmqs_dashboards_finds_its_figures(kernel_factory: KernelFactory) -> None:
    kernel = watched(kernel_factory, queues=[{"name": "orders"}])
    kernel.add_engine(EnginePlan(name="app", kind="broker-client", options={"broker": "broker"}))
    with kernel.open("app") as client:
        for key in ("orders", "orders", "nowhere"):
            client.publish(b"four", Envelope(key=key))
        assert client.get("orders", auto_ack=True) is not None
        samples = _read(get(kernel, "/metrics", "guest:guest").body)
    assert _one(samples, "rabbitmq_global_messages_received_total") == 3
    assert _one(samples, "rabbitmq_global_messages_unroutable_dropped_total") == 1
    # A panel adds these; it is empty if there is one that is not there.
    outgoing = [
        "redelivered_total",
        *(f"delivered_{how}_{ack}_ack_total" for how in ("consume", "get") for ack in ("auto", "manual")),
    ]
    assert sum(_one(samples, f"rabbitmq_global_messages_{each}") for each in outgoing) == 1
    used, most = (_one(samples, f"rabbitmq_process_{each}_tcp_sockets") for each in ("open", "max"))
    assert used == _one(samples, "rabbitmq_connections") == 1
    assert most > used
    [build] = [dict(labels) for name, labels in samples if name == "rabbitmq_build_info"]
    assert build["rabbitmq_version"].startswith("3.10.")


def test_consumers_of_a_journal_have_their_lag(
    kernel_factory: KernelFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("pyarrow")
    from plugins.engines.journal.positions import write_position

    monkeypatch.setattr("plugins.engines.journal.committer.HOUSEKEEPING", 0.01)
    kernel = kernel_factory(
        *THREADS,
        web(),
        EnginePlan(name="app", kind="native"),
        EnginePlan(name="log", kind="journal", options={"path": str(tmp_path / "log")}),
        RoutePlan(source="app", targets=("log",), confirm=True),
    )
    with kernel.open("app") as app:
        app.send_many([b"one", b"two", b"three"])
        app.wait_confirmed(timeout=30.0)
        # As a query of Spark with the option ``consumer`` does it.
        write_position(tmp_path / "log", "spark", 1)
        labels = {"engine": "log", "consumer": "spark"}

        def lag() -> float | None:
            key = ("kernel_journal_consumer_lag", tuple(sorted(labels.items())))
            return _read(get(kernel, "/metrics").body).get(key)

        until(lambda: lag() == 2)
        assert _one(_read(get(kernel, "/metrics").body), "kernel_journal_consumer_offset", **labels) == 1
        write_position(tmp_path / "log", "spark", 3)
        until(lambda: lag() == 0)


def test_engines_routes_and_threads_have_their_figures(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(
        *THREADS,
        web(),
        EnginePlan(name="left", kind="native"),
        EnginePlan(name="right", kind="native"),
        RoutePlan(source="left", targets=("right",)),
    )
    with kernel.open("left") as left, kernel.open("right") as right:
        left.send_many([b"one", b"two"])
        samples = _read(get(kernel, "/metrics").body)
        assert right.receive(timeout=30.0) == b"one"
    assert _one(samples, "kernel_route_messages_total", route="left -> right") == 2
    assert _one(samples, "kernel_route_messages_waiting", route="left -> right") == 2
    assert _one(samples, "kernel_engine_up", engine="web") == 1
    assert _one(samples, "kernel_engine_connections", engine="web") == 1
    assert _one(samples, "kernel_thread_turns_total", thread="web") > 0
    assert _one(samples, "kernel_pipes") == 1
    assert _one(samples, "process_resident_memory_bytes") > 1_000_000
    # No broker, so nothing under RabbitMQ's names.
    assert not [name for name, _ in samples if name.startswith("rabbitmq_")]


@pytest.mark.peer("promtool")
def test_promtool_has_no_complaint(kernel_factory: KernelFactory) -> None:
    kernel = watched(kernel_factory, queues=[{"name": name} for name in HOSTILE])
    page = get(kernel, "/metrics", "guest:guest").body
    done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_names_keep_prometheus_rules(kernel_factory: KernelFactory) -> None:
    page = get(watched(kernel_factory, queues=[{"name": "orders"}]), "/metrics", "guest:guest").body.decode()
    kinds = dict(line.split()[2:] for line in page.splitlines() if line.startswith("# TYPE"))
    helped = {line.split()[2] for line in page.splitlines() if line.startswith("# HELP")}
    assert len(kinds) > 60
    assert helped == set(kinds), "each has its help"
    for name, kind in kinds.items():
        assert name.endswith("_total") == (kind == "counter"), name


# Names that clients have chosen


def test_queues_of_any_name_are_one_sample_each() -> None:
    samples = _read(b"".join(queue_lines({"broker": _queues(HOSTILE)})))
    ready = {
        dict(labels)["queue"]: value for (name, labels), value in samples.items() if name.endswith("ready")
    }
    assert sorted(ready.values()) == list(range(len(HOSTILE)))
    assert {name for name, _ in samples} == {
        f"kernel_queue_{name}"
        for name in (
            *("messages_ready", "messages_unacked", "ready_bytes", "consumers"),
            *("messages_in_total", "messages_out_total"),
        )
    }
    for number, name in enumerate(HOSTILE):
        if name.isprintable() or name == "new\nline":
            assert ready[name] == number


@pytest.mark.parametrize("name", [name for name in HOSTILE if not set(name) & {"\r", "\x00"}])
def test_our_lines_are_those_of_the_library(name: str) -> None:
    """But for control characters, and for numbers: it writes all of them as floats."""
    family = GaugeMetricFamily("kernel_queue_messages_ready", "Help.", labels=("engine", "queue", "vhost"))
    text = name.encode("utf-8", "backslashreplace").decode()
    family.add_metric(("broker", text, "/"), 0)
    expected = generate_latest(OneFamily(family)).splitlines(keepends=True)[2].decode()
    assert (
        expected == f'kernel_queue_messages_ready{{engine="broker",queue="{escaped(name)}",vhost="/"}} 0.0\n'
    )


def test_hostile_names_of_a_running_broker(kernel_factory: KernelFactory) -> None:
    kernel = watched(kernel_factory, queues=[{"name": name} for name in HOSTILE[:12]])
    samples = _read(get(kernel, "/metrics", "guest:guest").body)
    assert _one(samples, "rabbitmq_queues") == 12
    assert [dict(labels)["engine"] for name, labels in samples if name == "kernel_engine_up"] == [
        "broker",
        "web",
    ]


# The message path


class _Figures:
    """A system of which only the figures are asked for."""

    def __init__(self, statistics: Any) -> None:
        self._statistics = statistics

    def statistics(self) -> Any:
        return self._statistics


class _Measured(SimulatedHost):
    """A host whose clock is this thread's processor time, so that slices end as they do in a thread."""

    def __init__(self) -> None:
        super().__init__()
        self.turns: list[float] = []

    def now(self) -> float:
        return time.thread_time()

    def soon(self, callback: Any) -> None:
        def measured() -> None:
            began = self.now()
            callback()
            self.turns.append(self.now() - began)

        super().soon(measured)


def test_a_page_of_many_queues_is_made_in_slices(kernel_factory: KernelFactory) -> None:
    kernel = watched(kernel_factory, queues=[{"name": f"queue {number}"} for number in range(1000)])
    host, answers = _Measured(), list[Any]()
    MetricsPage(_Figures(kernel.statistics()), host).make(answers.append)
    assert not answers, "it takes more than one slice"
    host.run()
    [answer] = answers
    assert isinstance(answer, Answer)
    assert _one(_read(b"".join(answer.body)), "rabbitmq_queues") == 1000
    # How long one takes is for benchmarks; that there are several is what the others wait for.
    assert len(host.turns) > 1


def test_clients_that_ask_at_the_same_time_share_a_page() -> None:
    from plugins.engines.web.shared_answer import SharedAnswer

    begun, got = list[Any](), list[Any]()
    shared = SharedAnswer(begun.append)
    for _ in range(3):
        shared.ask(got.append)
    assert len(begun) == 1
    begun.pop()(Answer(200))
    assert got == [Answer(200)] * 3
    shared.ask(got.append)
    assert len(begun) == 1, "and the next one gets the figures of then"


def test_a_web_engine_has_no_routes() -> None:
    from kernel.testing.fixtures import plan_of_text

    text = '[engines.web]\nkind = "web"\n[engines.a]\nkind = "native"\n[[routes]]\nfrom = "a"\nto = "web"'
    with pytest.raises(KernelError, match="web"):
        plan_of_text(text, PluginRegistry.load())
