"""RabbitMQ's names: the sums over all brokers, as RabbitMQ's own ``/metrics`` has them for its dashboards.

Names and meanings are those of RabbitMQ 3.10 (its plugin ``rabbitmq_prometheus``, aggregated).  What has no
counterpart here is left out: Erlang, Raft, channels.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Any

from prometheus_client.core import Metric

from plugins.engines.web.families import Figure, family
from plugins.engines.web.management.overview import SPOKEN

_OF_QUEUES = (
    Figure("messages_ready", "rabbitmq_queue_messages_ready", "Messages ready to be delivered to consumers"),
    Figure(
        "messages_outstanding",
        "rabbitmq_queue_messages_unacked",
        "Messages delivered to consumers but not yet acknowledged",
    ),
    Figure("bytes_ready", "rabbitmq_queue_messages_ready_bytes", "Size in bytes of ready messages"),
    Figure("consumers", "rabbitmq_queue_consumers", "Consumers on a queue"),
    Figure("consumers", "rabbitmq_consumers", "Consumers currently connected"),
    Figure(
        "messages_in",
        "rabbitmq_queue_messages_published_total",
        "Total number of messages published to queues",
    ),
)
_OF_BROKERS = (
    Figure("connections", "rabbitmq_connections", "Connections currently open"),
    Figure("accepted", "rabbitmq_connections_opened_total", "Total number of connections opened"),
    Figure(
        "messages_in",
        "rabbitmq_global_messages_received_total",
        "Total number of messages received from publishers",
    ),
    # Dashboards add the five kinds of deliveries, and show nothing if one is missing.
    Figure(
        "messages_out",
        "rabbitmq_global_messages_delivered_consume_manual_ack_total",
        "Total number of messages delivered to consumers; here those of all kinds",
    ),
    Figure(
        "logins_refused",
        "rabbitmq_auth_attempts_failed_total",
        "Total number of failed authentication attempts",
    ),
)
_NONE_HERE = (
    "rabbitmq_global_messages_delivered_consume_auto_ack_total",
    "rabbitmq_global_messages_delivered_get_auto_ack_total",
    "rabbitmq_global_messages_delivered_get_manual_ack_total",
    "rabbitmq_global_messages_redelivered_total",
)
"""Kinds of deliveries that are counted with the others."""
_OF_THE_MACHINE = (
    Figure("memory_limit", "rabbitmq_resident_memory_limit_bytes", "Memory high watermark in bytes"),
    Figure("disk_free", "rabbitmq_disk_space_available_bytes", "Disk space available in bytes"),
    Figure(
        "disk_free_limit",
        "rabbitmq_disk_space_available_limit_bytes",
        "Free disk space low watermark in bytes",
    ),
)
_ALARMS = (
    ("memory", "rabbitmq_alarms_memory_used_watermark", "is 1 if VM memory watermark alarm is in effect"),
    (
        "disk",
        "rabbitmq_alarms_free_disk_space_watermark",
        "is 1 if free disk space watermark alarm is in effect",
    ),
)
_OF_THE_PROCESS = {
    "process_resident_memory_bytes": ("rabbitmq_process_resident_memory_bytes", "Memory used in bytes"),
    "process_open_fds": ("rabbitmq_process_open_fds", "Open file descriptors"),
    "process_max_fds": ("rabbitmq_process_max_fds", "Open file descriptors limit"),
}
_BUILD = ("rabbitmq_version", "product_name", "product_version")

_SUM_PIECE = 200


def rabbitmq_families(
    brokers: Mapping[str, Mapping[str, Any]], process: Mapping[str, float]
) -> Iterator[Metric | None]:
    """Make the families; None where enough was done for one go.

    ``brokers``: the counters of each broker.  ``process``: figures of the process, by prometheus-client's
    names.
    """
    if not brokers:
        return
    node = f"kernel@{socket.gethostname()}"
    labels = ("rabbitmq_node", "rabbitmq_cluster")
    yield family(
        "rabbitmq_identity_info", "RabbitMQ node & cluster identity info", labels, [((node, node), 1)]
    )
    build = (SPOKEN, "messaging kernel", version("messaging-kernel"))
    yield family("rabbitmq_build_info", "RabbitMQ version whose names these are", _BUILD, [(build, 1)])
    yield from _of_queues(brokers)
    for name in _NONE_HERE:
        yield _single(name, "Counted in rabbitmq_global_messages_delivered_consume_manual_ack_total", 0)
    dropped = (vhost["messages_unrouted"] for each in brokers.values() for vhost in each["vhosts"].values())
    yield _single(
        "rabbitmq_global_messages_unroutable_dropped_total",
        "Total number of messages that no queue took; here also those that were returned",
        sum(dropped),
    )
    connections = sum(each["connections"] for each in brokers.values())
    yield _single("rabbitmq_process_open_tcp_sockets", "Open TCP sockets", connections)
    if "process_max_fds" in process:
        text = "Open TCP sockets limit"
        yield _single("rabbitmq_process_max_tcp_sockets", text, process["process_max_fds"])
    for figure in _OF_BROKERS:
        yield _single(figure.metric, figure.text, sum(each[figure.figure] for each in brokers.values()))
    for figure in _OF_THE_MACHINE:
        found = [each[figure.figure] for each in brokers.values() if figure.figure in each]
        if found:
            # Brokers of one process: the one that is limited first.
            yield _single(figure.metric, figure.text, min(found))
    raised = {alarm for each in brokers.values() for alarm in each["alarms"].split(", ")}
    for alarm, name, text in _ALARMS:
        yield _single(name, text, float(alarm in raised))
    for own, (name, text) in _OF_THE_PROCESS.items():
        if own in process:
            yield _single(name, text, process[own])


def _of_queues(brokers: Mapping[str, Mapping[str, Any]]) -> Iterator[Metric | None]:
    sums: Counter[str] = Counter()
    queues = 0
    for counters in brokers.values():
        for vhost in counters["vhosts"].values():
            for queue in vhost["queues"].values():
                sums.update(queue)
                queues += 1
                if queues % _SUM_PIECE == 0:
                    yield None
    yield _single("rabbitmq_queues", "Queues available", queues)
    for figure in _OF_QUEUES:
        yield _single(figure.metric, figure.text, sums[figure.figure])
    together = sums["messages_ready"] + sums["messages_outstanding"]
    text = "Sum of ready and unacknowledged messages - total queue depth"
    yield _single("rabbitmq_queue_messages", text, together)


def _single(name: str, text: str, value: float) -> Metric:
    return family(name, text, (), [((), value)])
