"""All that can be known of a topology file before it runs, for ``kernel check``.

Besides the mistakes that every reader of a file refuses (``check.py``) these are:

* *warnings*: what is possible and probably not meant.  A pattern that nearly no key matches, an engine to
  which no route leads, one that ``kernel run`` cannot open.  They do not make a file wrong.
* what is wrong on *this machine*: certificates that cannot be read are complaints, and a file where a folder
  has to be.  A port that is in use is a warning, because it may be in use by the system that runs this file
  already.

``kernel run`` looks for none of these, except engines that it cannot open.  An engine reports by itself
what it lacks, and tries again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path as FilePath
from typing import Any

import msgspec

from kernel.contracts.errors import PlanError
from kernel.contracts.kinds import Flow
from kernel.contracts.options import NeedsFiles, WritesFolders
from kernel.contracts.spelling import DOTTED
from kernel.hosting.listener import why_unavailable
from kernel.plugins import PluginRegistry
from kernel.topology.check import Checker, check, line_of, listening_places, place_of
from kernel.topology.file import TopologyFile, read_file
from kernel.topology.plan import Plan
from kernel.topology.toml_lines import Path
from kernel.topology.unopened import guests, unopened


class Report(msgspec.Struct, kw_only=True):
    """What was found in a file.  Complaints and warnings are in the order of the file."""

    plan: Plan | None
    """None if there are complaints."""
    complaints: list[str]
    warnings: list[str]


def check_file(path: str | FilePath, registry: PluginRegistry, *, machine: bool = True) -> Report:
    """Check a topology file, and with ``machine`` what it needs of this machine."""
    try:
        file = read_file(path)
    except PlanError as error:
        return Report(plan=None, complaints=error.complaints, warnings=[])
    plan, checker = check(file, registry)
    # A route with a mistake is not in the plan, so its engines would seem to have none.
    if not file.complaints:
        _warn_of_patterns(file)
        _warn_of_lonely_engines(file, plan, registry, checker)
        for text in registry.warn_of_plan(plan):
            file.warn(place_of(text), text)
        for engine, text in unopened(plan, registry):
            file.warn(("engines", engine.name), f"[engines.{engine.name}] {text}")
        for thread, text in guests(plan, registry):
            file.warn(("threads", thread.name), f"[threads.{thread.name}] {text}")
    if machine:
        _look_at_machine(file, checker)
    return Report(
        plan=None if file.complaints else plan,
        complaints=sorted(file.complaints, key=line_of),
        warnings=sorted(file.warnings, key=line_of),
    )


def _warn_of_patterns(file: TopologyFile) -> None:
    """Warn of patterns of routes that match no key that anybody is likely to send."""
    # The values of the file and not the plan, which has no line for a single pattern.
    for number, table in enumerate(file.values.get("routes", [])):
        match = table.get("match", ())
        single = isinstance(match, str)
        for index, pattern in enumerate([match] if single else match):
            place: Path = ("routes", number, "match") if single else ("routes", number, "match", index)
            why = _unlikely(pattern)
            if why:
                file.warn(place, f"match = {file.shown(place, pattern)} {why}")


def _unlikely(pattern: str) -> str:
    """Say why a pattern probably does not match what was meant; empty if it does."""
    # The empty pattern matches messages without a key.
    if not pattern or pattern.startswith(DOTTED.prefix):
        return ""
    words = pattern.split(DOTTED.separator)
    if "" in words:
        return (
            "has an empty word, so it matches only keys with two dots in a row or a dot at an end; "
            "'*' stands for one word"
        )
    for wildcard in (DOTTED.one_word, DOTTED.any_words):
        if any(wildcard in word and word != wildcard for word in words):
            return (
                f"has {wildcard!r} inside a word, where it stands for itself; as a wildcard it has to be a whole "
                "word between dots, and 'prefix:' matches beginnings"
            )
    return ""


def _warn_of_lonely_engines(
    file: TopologyFile, plan: Plan, registry: PluginRegistry, checker: Checker
) -> None:
    """Warn of engines that are of no use, because no route begins or ends at them."""
    for engine in plan.engines:
        flow = _flow_of(engine.name, engine.kind, registry, checker)
        routes = plan.routes_of(engine.name)
        if flow.alone or routes:
            continue
        if flow.takes and flow.gives:
            text = "no route begins or ends here, so no message gets in or out"
        else:
            text = (
                "no route leads here, so it gets no message"
                if flow.takes
                else "no route begins here, so its messages are dropped"
            )
        file.warn(("engines", engine.name), f"[engines.{engine.name}] {text}; add a [[routes]] table")


def _flow_of(name: str, kind: str, registry: PluginRegistry, checker: Checker) -> Flow:
    installed = registry.apis.get(kind)
    # A channel needs a route; a client of a broker does not.
    return checker.flow_of(name) if installed is None else Flow(alone=not installed.kind.routed)


def _look_at_machine(file: TopologyFile, checker: Checker) -> None:
    """Complain of files that cannot be used, and warn of places at which nobody can listen now."""
    written = folders_written(checker)
    for path, made in checker.made:
        where = f"[{'.'.join(map(str, path))}]"
        for option, folder in made.folders() if isinstance(made, WritesFolders) else ():
            # Whether it can be written is not asked: another user may run the topology.
            if not (there := nearest_that_exists(FilePath(folder))).is_dir():
                text = "it" if (*path, option) in file.with_variables else str(there)
                file.complain((*path, option), f"{where} {option}: {text} is no folder; name another one")
        for place, text in unreadable(path, made, written):
            if place in file.without_value:
                continue
            key = ".".join(map(str, place[len(path) :]))
            # The name of the file may be a secret, as every value from the environment.
            shown = f"{key}: the file cannot be used" if place in file.with_variables else f"{key}: {text}"
            file.complain(place, f"{where} {shown}")
        for place, text in checker.mistakes_in_files(path, made):
            file.complain(place, f"{where} {place[-1]}: {text}")
        for option, listening in listening_places(made):
            why = why_unavailable(listening)
            if why:
                shown = file.shown((*path, option), str(listening))
                file.warn((*path, option), f"{where} {option}: cannot listen at {shown} now: {why}")


def nearest_that_exists(folder: FilePath) -> FilePath:
    """Return a folder, or the nearest one around it that exists: an engine makes those in it."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def folders_written(checker: Checker) -> set[str]:
    """Return the folders that engines of the file write, and make if they do not exist."""
    return {
        folder for _, made in checker.made if isinstance(made, WritesFolders) for _, folder in made.folders()
    }


def unreadable(path: Path, made: Any, written: Collection[str]) -> Iterator[tuple[Path, str]]:
    """Ask an options object, and those in its fields, for files that cannot be used.

    ``written``: folders of which it does not matter that they cannot be read yet.
    """
    if isinstance(made, NeedsFiles):
        for key, text in made.unreadable():
            if getattr(made, key, None) not in written:
                yield (*path, key), text
    if isinstance(made, msgspec.Struct):
        for name in made.__struct_fields__:
            yield from unreadable((*path, name), getattr(made, name), written)
