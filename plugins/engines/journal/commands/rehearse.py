"""``kernel rehearse``: plays a journal through a topology in memory, and says who gets what."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
import pyarrow as pa

from kernel import Plan, load_plan, rehearse
from kernel.contracts.counts import counted
from kernel.contracts.errors import KernelError
from kernel.contracts.rehearsing import Played, Recorded, Subject
from plugins.engines.journal.commands.common import (
    DamageReport,
    JournalPath,
    filter_options,
    json_option,
    progress,
    range_options,
    selection_of,
)
from plugins.engines.journal.moments import Moment, offset_of
from plugins.engines.journal.selection import Selection
from plugins.engines.journal.stored_batches import StoredBatches
from plugins.protocols.journal_format.reader import JournalReader

_PIECE = 5000
"""Messages that are played before it is counted who got them."""

_SHOWN = 5
"""Keys of a receiver that are shown, the most frequent first."""


@click.command("rehearse")
@click.argument("file", type=click.Path())
@click.option(
    "--with",
    "journal",
    type=JournalPath(),
    required=True,
    metavar="JOURNAL",
    help="The recorded feed, a directory.",
)
@click.option(
    "--instead-of", "other", type=click.Path(), metavar="OLD", help="Compare with this topology file."
)
@range_options
@filter_options
@click.option(
    "--definitions",
    metavar="ENGINE=FILE",
    multiple=True,
    help="Queues and bindings of a broker, as `kernel definitions export` writes them; repeatable.",
)
@click.option(
    "--keys",
    type=click.IntRange(min=0),
    default=_SHOWN,
    show_default=True,
    help="Keys to show of each receiver.",
)
@json_option
def command(
    file: str,
    journal: Path,
    other: str | None,
    start: Moment,
    end: Moment,
    match: tuple[str, ...],
    exchange: str | None,
    engine: str | None,
    definitions: tuple[str, ...],
    keys: int,
    as_json: bool,
) -> int:
    """Play a recorded feed through the topology FILE in memory, and say who gets what.

    Nothing is opened: no port, no file, no connection.  Each engine is replaced by one that sends what the
    journal has of it and counts what comes; brokers run without listeners, and each queue counts.  With
    --instead-of the exit status is 1 if somebody gets other messages than with OLD.
    """
    imported = dict(map(_pair_of, definitions))
    plans = {name: _with_definitions(load_plan(name), imported) for name in (other, file) if name}
    reader = JournalReader(journal)
    first, stop = offset_of(reader, start), offset_of(reader, end)
    selection = selection_of(match, exchange, engine)
    played = {}
    for name, plan in plans.items():
        with progress(f"rehearsing {name}", stop - first) as step:
            recorded = _recorded(reader, first, stop, selection, step)
            played[name] = rehearse(plan, recorded)
    new, old = played[file], played.get(other) if other else None
    if as_json:
        click.echo(json.dumps({"new": _as_json(new), "old": None if old is None else _as_json(old)}))
    else:
        for line in _report(new, old, file, keys):
            click.echo(line)
    return int(old is not None and (new.got != old.got or new.nobody != old.nobody))


def _pair_of(text: str) -> tuple[str, str]:
    engine, equals, file = text.partition("=")
    if not equals or not engine:
        raise click.UsageError(f"--definitions {text!r} has to be ENGINE=FILE")
    return engine, file


def _with_definitions(plan: Plan, imported: dict[str, str]) -> Plan:
    unknown = set(imported).difference(engine.name for engine in plan.engines)
    if unknown:
        raise KernelError(f"--definitions: there is no engine {min(unknown)!r} in {plan.file}")
    engines = tuple(
        msgspec.structs.replace(
            engine,
            options={**engine.options, "definitions": str(Path(imported[engine.name]).absolute())},
        )
        if engine.name in imported
        else engine
        for engine in plan.engines
    )
    return msgspec.structs.replace(plan, engines=engines)


def _recorded(
    reader: JournalReader, first: int, stop: int, selection: Selection, step: Any
) -> Iterator[Sequence[Recorded]]:
    """Yield the messages of a journal in pieces, each batch with the port that has sent it."""
    batches = StoredBatches()
    for stored in reader.stored(first, stop, on_damage=DamageReport()):
        for at in range(0, stored.num_rows, _PIECE):
            piece = selection.of(stored.slice(at, _PIECE))
            yield [(port, batch) for port, rows in _by_port(piece) for _, batch in batches.of(rows)]
            step(min(_PIECE, stored.num_rows - at))


def _by_port(stored: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Divide rows by the port that has sent them; the rows of one stay in order."""
    column = stored.column("envelope")
    ports = column.dictionary.field("engine").to_pylist()
    different = sorted(set(ports))
    if len(different) <= 1:
        yield from ((port, stored) for port in different)
        return
    for port in different:
        wanted = pa.array([each == port for each in ports], pa.bool_())
        yield port, stored.filter(wanted.take(column.indices))


def _report(new: Played, old: Played | None, file: str, keys: int) -> Iterator[str]:
    fed = ", ".join(f"{count:,} from {name!r}" for name, count in sorted(new.fed.items()))
    yield f"played {counted(new.fed.total(), 'message')}: {fed or 'none'}"
    for name, count in sorted(new.unknown.items()):
        yield f"not played: {counted(count, 'message')} from {name!r}, which is no engine of {file}"
    # Of the other topology's senders those that this one does not have were named above.
    for name, count in sorted((old.unknown if old else Counter()).items()):
        if name in new.fed:
            yield f"{name!r}, with {counted(count, 'message')}, is new"
    receivers = sorted({*new.got, *(old.got if old else ())})
    width = max(map(len, (*receivers, "nobody")))
    for receiver in receivers:
        yield from _line(receiver, width, new.got[receiver], None if old is None else old.got[receiver], keys)
    if new.nobody or (old and old.nobody):
        yield from _line("nobody", width, new.nobody, None if old is None else old.nobody, keys)


def _line(
    receiver: str, width: int, now: Counter[Subject], before: Counter[Subject] | None, keys: int
) -> Iterator[str]:
    if before is None:
        yield f"{receiver:{width}}  {now.total():>12,}"
        yield from (f"    {_name(subject)}  {count:,}" for subject, count in now.most_common(keys))
        return
    yield f"{'  ' if now == before else '! '}{receiver:{width}}  {before.total():>12,} -> {now.total():,}"
    changes = Counter({subject: now[subject] - before[subject] for subject in {*now, *before}})
    changed = sorted(
        ((subject, change) for subject, change in changes.items() if change),
        key=lambda pair: (-abs(pair[1]), pair[0]),
    )
    yield from (f"    {change:+,}  {_name(subject)}" for subject, change in changed[:keys])
    if len(changed) > keys:
        yield f"    and {counted(len(changed) - keys, 'key')} more"


def _name(subject: Subject) -> str:
    exchange, key = subject
    return f"{key!r} of exchange {exchange!r}" if exchange else f"{key!r}"


def _as_json(played: Played) -> dict[str, Any]:
    return {
        "played": played.fed,
        "not_played": played.unknown,
        "got": {receiver: _rows(counts) for receiver, counts in sorted(played.got.items())},
        "nobody": _rows(played.nobody),
    }


def _rows(counts: Counter[Subject]) -> list[dict[str, Any]]:
    return [
        {"exchange": exchange, "key": key, "messages": count}
        for (exchange, key), count in sorted(counts.items())
    ]
