"""Metrics page: all figures in Prometheus' text format, made in slices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, ProcessCollector, generate_latest

from kernel.contracts.engine import Host
from kernel.contracts.system import System
from plugins.engines.web.answer import Answer, Respond
from plugins.engines.web.families import OneFamily, brokers_in, families
from plugins.engines.web.queue_lines import queue_lines
from plugins.engines.web.rabbitmq_names import rabbitmq_families
from plugins.engines.web.slices import in_slices

if TYPE_CHECKING:
    from kernel.topology.statistics import SystemStatistics


class MetricsPage:
    """Makes the page, once at a time (``SharedAnswer``)."""

    def __init__(self, system: System, host: Host) -> None:
        self._system = system
        self._host = host
        # Without a registry: the library's own is for programs that have one registry for everything.
        self._process = ProcessCollector(registry=None)

    def make(self, respond: Respond) -> None:
        """Read the figures now; ``respond`` is called in a later turn, with the page."""
        made: list[bytes] = []

        def done() -> None:
            respond(Answer(200, made, CONTENT_TYPE_PLAIN_0_0_4))

        in_slices(self._host, self._pieces(self._system.statistics()), made.append, done)

    def _pieces(self, statistics: SystemStatistics) -> Iterator[bytes]:
        for each in families(statistics):
            yield generate_latest(OneFamily(each))
        process: dict[str, float] = {}
        for each in self._process.collect():
            # RabbitMQ's names have some of these figures as well (``rabbitmq_families``), and /proc should be
            # read once.
            process |= {sample.name: sample.value for sample in each.samples}
            yield generate_latest(OneFamily(each))
        brokers = brokers_in(statistics)
        for made in rabbitmq_families(brokers, process):
            yield b"" if made is None else generate_latest(OneFamily(made))
        yield from queue_lines(brokers)
