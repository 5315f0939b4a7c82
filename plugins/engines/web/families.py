"""Families: the figures of a kernel as Prometheus' metrics, but for those of single queues.

``docs/web.md`` lists them.  Names follow Prometheus' rules: a unit at the end, ``_total``
for what only grows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

if TYPE_CHECKING:
    from kernel.topology.statistics import EngineStatistics, SystemStatistics

Sample: TypeAlias = tuple[tuple[str, ...], float]
"""The values of the labels, and the figure."""


class OneFamily(NamedTuple):
    """A collector of one family, for ``generate_latest``."""

    family: Metric

    def collect(self) -> list[Metric]:
        """Return the family."""
        return [self.family]


class Figure(NamedTuple):
    """A figure of ours and the metric that it is.  A name that ends with ``_total`` makes it a counter."""

    figure: str
    metric: str
    text: str


_ENGINE = (
    Figure("messages_in", "kernel_engine_messages_in_total", "Messages from the engine's peers."),
    Figure("messages_out", "kernel_engine_messages_out_total", "Messages to the engine's peers."),
    Figure("bytes_in", "kernel_engine_in_bytes_total", "Bytes from the engine's peers."),
    Figure("bytes_out", "kernel_engine_out_bytes_total", "Bytes to the engine's peers."),
    Figure("connections", "kernel_engine_connections", "Open connections."),
    Figure("accepted", "kernel_engine_connections_accepted_total", "Connections accepted."),
    Figure("refused", "kernel_engine_connections_refused_total", "Connections refused."),
    Figure("reconnects", "kernel_engine_reconnects_total", "Connections lost by an engine that dials."),
    Figure("logins_refused", "kernel_engine_logins_refused_total", "Logins that failed."),
    Figure("protocol_errors", "kernel_engine_protocol_errors_total", "Violations of a protocol by a peer."),
    Figure(
        "messages_refused",
        "kernel_engine_messages_refused_total",
        "Messages that the peer does not accept, or that its protocol cannot carry.",
    ),
    Figure("messages_lost", "kernel_engine_messages_lost_total", "Messages lost with a connection."),
    Figure(
        "messages_nacked", "kernel_engine_messages_nacked_total", "Messages that the server did not take."
    ),
    Figure("messages_returned", "kernel_engine_messages_returned_total", "Messages returned: for no queue."),
    Figure("requests", "kernel_engine_requests_total", "HTTP requests."),
)
_JOURNAL = (
    Figure("committed", "kernel_journal_messages_committed_total", "Messages written since the start."),
    Figure("durable", "kernel_journal_messages_durable_total", "Messages that are safe, since the start."),
    Figure("commits", "kernel_journal_commits_total", "Commits."),
    Figure("syncs", "kernel_journal_syncs_total", "Calls of fsync."),
    Figure("segments_deleted", "kernel_journal_segments_deleted_total", "Segments deleted by retention."),
    Figure("next_offset", "kernel_journal_next_offset", "Offset of the next message."),
)
_BROKER = (
    Figure("routed_in", "kernel_broker_messages_routed_in_total", "Messages taken from routes."),
    Figure("routed_out", "kernel_broker_messages_routed_out_total", "Messages given to routes."),
    Figure("memory", "kernel_broker_memory_bytes", "Memory of the process when it was read last."),
    Figure("memory_limit", "kernel_broker_memory_limit_bytes", "Memory from which on publishers wait."),
    Figure("queued", "kernel_broker_queued_bytes", "Memory of all queues when it was read last."),
    Figure("queued_limit", "kernel_broker_queued_limit_bytes", "The same from which on publishers wait."),
    Figure("disk_free", "kernel_broker_disk_free_bytes", "Free bytes of the disk when they were read last."),
    Figure("disk_free_limit", "kernel_broker_disk_free_limit_bytes", "Free bytes that have to stay."),
)
_VHOST = (
    Figure("messages_in", "kernel_vhost_messages_published_total", "Messages published."),
    Figure(
        "messages_unrouted", "kernel_vhost_messages_unrouted_total", "Messages for which there was no queue."
    ),
    Figure(
        "messages_undeliverable",
        "kernel_vhost_messages_undeliverable_total",
        "Messages that a consumer's protocol cannot carry.",
    ),
    Figure(
        "messages_repeated",
        "kernel_vhost_messages_repeated_total",
        "Messages dropped because the queues had taken their publishing id before.",
    ),
    Figure("exchanges", "kernel_vhost_exchanges", "Exchanges."),
)
_PORT = (
    Figure("ports", "kernel_port_connected", "Ports of the engine, or of the application's channel."),
    Figure("unrouted", "kernel_port_messages_unrouted_total", "Messages sent that no route accepted."),
    Figure(
        "abandoned", "kernel_port_messages_abandoned_total", "Messages left by a destination that closed."
    ),
)
_ROUTE = (
    Figure("pipes", "kernel_route_pipes", "Pipes."),
    Figure("depth", "kernel_route_messages_waiting", "Messages in the pipes."),
    Figure("held", "kernel_route_messages_held", "Messages that wait for a pipe with room."),
    Figure("written", "kernel_route_messages_total", "Messages written to the pipes."),
    Figure("bytes", "kernel_route_bytes_total", "Bytes of the messages taken from the pipes."),
    Figure("dropped", "kernel_route_messages_dropped_total", "Messages dropped because a pipe was full."),
    Figure("refused", "kernel_route_messages_refused_total", "Messages that a destination refused."),
    Figure("unrouted", "kernel_route_messages_unrouted_total", "Messages without a destination."),
)
_THREAD = (
    Figure("turns", "kernel_thread_turns_total", "Turns of the thread's loop."),
    Figure("depth", "kernel_thread_messages_waiting", "Messages that wait for the thread."),
    Figure("pipes_in", "kernel_thread_pipes_in", "Pipes that the thread reads."),
    Figure("pipes_out", "kernel_thread_pipes_out", "Pipes that the thread writes."),
)


def brokers_in(statistics: SystemStatistics) -> dict[str, Mapping[str, Any]]:
    """Return the counters of the engines that are brokers, by name."""
    return {engine.name: engine.counters for engine in statistics.engines if "vhosts" in engine.counters}


def families(statistics: SystemStatistics) -> Iterator[Metric]:
    """Make the families one after the other, so that the caller can pause between two."""
    yield from _of_engines(statistics.engines)
    yield from _of_brokers(brokers_in(statistics))
    for label, figures, rows in (
        ("engine", _PORT, statistics.ports),
        ("route", _ROUTE, statistics.routes),
        ("thread", _THREAD, statistics.threads),
    ):
        for each in figures:
            yield _summed(each, label, [(row.name, getattr(row, each.figure)) for row in rows])
    pipes = statistics.pipes
    yield family("kernel_pipes", "Pipes.", (), [((), len(pipes))])
    blocked = sum(1 for pipe in pipes if pipe.blocked)
    yield family("kernel_pipes_blocked", "Pipes that are full, so that a writer waits.", (), [((), blocked)])
    suspended = sum(1 for pipe in pipes if pipe.suspended)
    text = "Pipes for which no writer waits any more: messages are dropped."
    yield family("kernel_pipes_suspended", text, (), [((), suspended)])


def _of_engines(engines: Sequence[EngineStatistics]) -> Iterator[Metric]:
    up = [((each.name,), float(each.state in ("running", "ended"))) for each in engines]
    yield family("kernel_engine_up", "1 if the engine runs, or has done its work.", ("engine",), up)
    failures = [((each.name,), each.failures) for each in engines]
    yield family("kernel_engine_failures_total", "Failures of the engine.", ("engine",), failures)
    counters = {each.name: each.counters for each in engines}
    for figure in _ENGINE:
        yield from _of_counters(figure, counters)
    journals = {name: each for name, each in counters.items() if "journal" in each}
    for figure in _JOURNAL:
        yield from _of_counters(figure, journals)
    consumers = [
        (engine, consumer, position, each["next_offset"])
        for engine, each in journals.items()
        for consumer, position in each.get("consumers", {}).items()
    ]
    if consumers:
        labels = ("engine", "consumer")
        yield family(
            "kernel_journal_consumer_offset",
            "Offset of the next message of a consumer, such as a query of Spark.",
            labels,
            [((engine, consumer), position) for engine, consumer, position, _ in consumers],
        )
        yield family(
            "kernel_journal_consumer_lag",
            "Messages that a consumer has not read yet.",
            labels,
            [((engine, consumer), max(0, end - position)) for engine, consumer, position, end in consumers],
        )


def _of_brokers(brokers: Mapping[str, Mapping[str, Any]]) -> Iterator[Metric]:
    for figure in _BROKER:
        yield from _of_counters(figure, brokers)
    if not brokers:
        return
    alarms = [
        ((name, alarm), float(alarm in str(counters.get("alarms", "")).split(", ")))
        for name, counters in brokers.items()
        for alarm in ("disk", "memory")
    ]
    text = "1 while the alarm is raised, and publishers have to wait."
    yield family("kernel_broker_alarm", text, ("engine", "alarm"), alarms)
    vhosts = [
        (name, vhost, figures)
        for name, counters in brokers.items()
        for vhost, figures in counters["vhosts"].items()
    ]
    for each in _VHOST:
        samples = [((name, vhost), figures[each.figure]) for name, vhost, figures in vhosts]
        yield family(each.metric, each.text, ("engine", "vhost"), samples)
    queues = [((name, vhost), len(figures["queues"])) for name, vhost, figures in vhosts]
    yield family("kernel_vhost_queues", "Queues.", ("engine", "vhost"), queues)


def _of_counters(figure: Figure, counters: Mapping[str, Mapping[str, Any]]) -> Iterator[Metric]:
    """Make the family of a counter, if an engine has it."""
    samples = [
        ((name,), value)
        for name, each in counters.items()
        # A plugin's engine may use the name for something else.
        if isinstance(value := each.get(figure.figure), int | float)
    ]
    if samples:
        yield family(figure.metric, figure.text, ("engine",), samples)


def _summed(figure: Figure, label: str, rows: Iterable[tuple[str, float]]) -> Metric:
    """Make a family in which each name is once: several threads of an application may have the same."""
    sums: Counter[str] = Counter()
    for name, value in rows:
        sums[name] += value  # type: ignore[assignment]  # figures may be floats, and typeshed counts with int
    return family(figure.metric, figure.text, (label,), [((name,), value) for name, value in sums.items()])


def family(name: str, text: str, labels: tuple[str, ...], samples: Iterable[Sample]) -> Metric:
    """Make a family; a counter if its name ends with ``_total``."""
    made: CounterMetricFamily | GaugeMetricFamily
    if name.endswith("_total"):
        made = CounterMetricFamily(name, text, labels=labels)
    else:
        made = GaugeMetricFamily(name, text, labels=labels)
    for values, figure in samples:
        made.add_metric([_utf8(value) for value in values], figure)
    return made


def _utf8(label: str) -> str:
    """Return a label that can be written: names of virtual hosts may have octets that are no UTF-8."""
    return label.encode("utf-8", "backslashreplace").decode()
