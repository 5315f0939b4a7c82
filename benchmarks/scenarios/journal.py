"""The journal: appending from a full pipe, its cost for a broker's feed, replay, export; 100 B a message.

Files lie in the folder for temporary files: its disk is measured, too.
"""

from __future__ import annotations

from functools import partial

from benchmarks import journals, kernels
from benchmarks.amqp import ours
from benchmarks.amqp.pairs import Client, through
from benchmarks.amqp.work import Work
from benchmarks.processes import Child, one_way
from benchmarks.scenario import Figures, Measured, Row, Scenario, Side

SIZE = 100
_CLIENT = Client("our client", ours.publish, ours.consume)
_AIMS = {"append_interval": 2.5e6, "append_batch": 1e6, "replay": 1e6}
_APPEND = "append, fsync {}"
_WITH, _WITHOUT, _APART = "broker with a journal", "broker without", "broker, journal in a process"
_REPLAY, _READ = "replay", "export"


def _append(fsync: str, scale: float) -> Figures:
    with Child(journals.append, fsync, int(3_000_000 * scale), SIZE) as child:
        return {"rate": child.hear()}


def _feed(journal: str, scale: float) -> Figures:
    work = Work("feed", 1_500_000)
    return through(partial(journals.journaling_broker, journal), _CLIENT, work, scale)


def _replay(scale: float) -> Figures:
    return one_way(kernels.receive_batch, journals.replay, int(4_000_000 * scale) // 1000 * 1000, SIZE)


def _read(scale: float) -> Figures:
    with Child(journals.read, int(4_000_000 * scale) // 1000 * 1000, SIZE) as child:
        figures: Figures = child.hear()
        return figures


def _aim_side(name: str) -> str:
    return f"the aim: {_AIMS[name]:,.0f} msg/s"


def _aimed(name: str, what: str, ours: str) -> Row:
    return Row(
        name=f"journal_{name}",
        what=what,
        figure="rate",
        unit="msg/s",
        bar=">= 1.0",
        ours=ours,
        peers=(_aim_side(name),),
    )


def _remarks(measured: Measured) -> list[str]:
    count, export = measured.median(_READ, "count"), measured.median(_READ, "rate")
    if not count or not export:
        return []
    return [
        f"`kernel journal stat`, a group-by of key through pyarrow: {count / 1e6:.1f} M rows/s; "
        f"`kernel journal export` to Parquet: {export / 1e6:.1f} M rows/s."
    ]


SCENARIO = Scenario(
    name="journal",
    sides=(
        Side(_APPEND.format("interval"), partial(_append, "interval")),
        Side(_APPEND.format("batch"), partial(_append, "batch")),
        Side(_WITH, partial(_feed, "poll")),
        Side(_WITHOUT, partial(_feed, "")),
        Side(_APART, partial(_feed, "process")),
        Side(_REPLAY, _replay),
        Side(_READ, _read),
        *(Side(_aim_side(name), lambda scale, aim=aim: {"rate": aim}) for name, aim in _AIMS.items()),  # type: ignore[misc]
    ),
    rows=(
        _aimed(
            "append_interval", "rows written from a full pipe, fsync every second", _APPEND.format("interval")
        ),
        _aimed(
            "append_batch",
            "rows safe on disk from a full pipe, fsync after every commit",
            _APPEND.format("batch"),
        ),
        Row(
            name="journal_feed",
            what="publisher, broker, consumer, with everything journaled",
            figure="rate",
            unit="msg/s",
            bar=">= 0.75",
            ours=_WITH,
            peers=(_WITHOUT,),
        ),
        Row(
            name="journal_apart",
            what="processor time of the broker's process, a message, with a journal in a process of its own",
            figure="broker",
            unit="µs",
            bar="<= 1.3",
            ours=_APART,
            peers=(_WITHOUT,),
        ),
        _aimed("replay", "replay flat out into the backend protocol", _REPLAY),
    ),
    remarks=_remarks,
)
