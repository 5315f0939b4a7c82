"""Queue lines: the figures of queues as Prometheus' text.

A broker may have very many queues, each with several figures.  prometheus-client needs about 9 us of
processor time for a line, since it sorts and escapes the labels of each anew.  Here the labels of a queue are
escaped once for all of its figures, and a line is joined from three texts: about 0.3 us.  prometheus-client
still writes the heads of the families; docs/decisions/0034-web.md has the figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from plugins.engines.web.families import OneFamily

LINES_A_PIECE = 200
"""Lines that are made in one go: a tenth of a millisecond."""

Figures = Mapping[str, Any]


class _Family(NamedTuple):
    name: str
    figure: str
    """The name of the figure in the statistics of a queue."""
    text: str
    counter: bool = False

    def head(self) -> bytes:
        """Return the lines of help and type."""
        kind = CounterMetricFamily if self.counter else GaugeMetricFamily
        return generate_latest(OneFamily(kind(self.name, self.text)))


_FAMILIES = (
    _Family("kernel_queue_messages_ready", "messages_ready", "Messages that are ready for consumers."),
    _Family(
        "kernel_queue_messages_unacked",
        "messages_outstanding",
        "Messages delivered and not acknowledged yet.",
    ),
    _Family("kernel_queue_ready_bytes", "bytes_ready", "Bytes of the bodies of ready messages."),
    _Family("kernel_queue_consumers", "consumers", "Consumers of the queue."),
    _Family(
        "kernel_queue_messages_in_total",
        "messages_in",
        "Messages that the queue has taken so far.",
        counter=True,
    ),
    _Family(
        "kernel_queue_messages_out_total",
        "messages_out",
        "Messages that the queue has delivered so far.",
        counter=True,
    ),
)


def queue_lines(brokers: Mapping[str, Figures]) -> Iterator[bytes]:
    """Make the lines of all queues, in pieces that take little time each.

    ``brokers``: the counters of each broker, by the name of its engine.
    """
    labelled: list[tuple[str, Figures]] = []
    for labels in _labelled(brokers):
        labelled.append(labels)
        if len(labelled) % LINES_A_PIECE == 0:
            # Nothing to write yet, but enough was done for one go.
            yield b""
    for family in _FAMILIES if labelled else ():
        yield family.head()
        figure, begin = family.figure, family.name
        lines = iter(labelled)
        while piece := list(islice(lines, LINES_A_PIECE)):
            text = "".join([f"{begin}{labels} {figures[figure]}\n" for labels, figures in piece])
            yield text.encode()


def _labelled(brokers: Mapping[str, Figures]) -> Iterator[tuple[str, Figures]]:
    for engine, counters in brokers.items():
        for vhost, figures in counters["vhosts"].items():
            common = f'{{engine="{escaped(engine)}",vhost="{escaped(vhost)}",queue="'
            for name, queue in figures["queues"].items():
                yield f'{common}{escaped(name)}"}}', queue


def _escapes() -> dict[int, str]:
    # Prometheus knows three escapes.  Its parsers differ on other control characters, so they are written
    # in Python's way, with a backslash of their own.
    table = {code: rf"\\x{code:02x}" for code in (*range(32), 127)}
    return table | {ord("\\"): r"\\", ord('"'): r"\"", ord("\n"): r"\n"}


_ESCAPES = _escapes()


def escaped(text: str) -> str:
    r"""Return the value of a label, whatever text a client has chosen.

    Octets that are no UTF-8, which Python keeps as lone surrogates, become ``\\udcNN``: Prometheus takes
    UTF-8 only.
    """
    return text.encode("utf-8", "backslashreplace").decode().translate(_ESCAPES)
