"""Makes a plan of a topology file, or reports all its mistakes at once, each with file, line and a hint.

``option_check.py`` checks tables against their options classes.  This module checks what concerns several
parts of a file: names that do not exist, and routes whose options contradict each other.

A check never stops at a mistake: it adds a complaint and goes on with the next part, because a user wants to
see all mistakes of a file at once.  Two rules keep the list useful.  One mistake has one complaint: what only
follows from it is not reported (an engine with an unknown kind still counts as an engine for routes).  And a
complaint shows no value that came from an environment variable, because it may be a secret.

Plugins check last, and only a plan without mistakes (``check_plan`` in ``kernel/hookspecs.py``), so that they
may rely on what is checked here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import Any

import msgspec

from kernel.contracts.errors import PlanError, nearest
from kernel.contracts.kinds import EngineKind, Flow, KindTables
from kernel.contracts.options import ListeningPlace, Listens
from kernel.pipes.water_marks import WaterMarks, WhenFull
from kernel.plugins import Installed, PluginRegistry
from kernel.topology.border import is_apart
from kernel.topology.file import TopologyFile, read_file, read_text
from kernel.topology.option_check import check_options, without_secrets
from kernel.topology.plan import (
    DEFAULT_THREAD,
    EnginePlan,
    Plan,
    RoutePlan,
    ThreadPlan,
    shards_of,
    with_shards,
)
from kernel.topology.toml_lines import Path

_SECTIONS = ("threads", "engines", "routes")
_ANY_FLOW = Flow()
_ENGINE = re.compile(r"engine '([^']+)'")


class _RouteTable(msgspec.Struct, kw_only=True):
    """The keys of a ``[[routes]]`` table.

    A class of its own, since a route is not written as ``RoutePlan`` holds it: ``to`` and ``match`` may be a
    single text, and the water marks are keys of the route.
    """

    source: str = msgspec.field(name="from")
    to: str | tuple[str, ...]
    when: str = "always"
    """Not empty: a route with an empty one is left out before."""
    match: str | tuple[str, ...] = ()
    exchange: str | None = None
    router: str = "fan-out"
    options: dict[str, Any] = {}
    confirm: bool = False
    echo: bool = False
    dead_letters: str | None = None
    when_full: WhenFull = "block"
    high: int = WaterMarks().high
    high_bytes: int = WaterMarks().high_bytes
    stall_timeout: float = WaterMarks().stall_timeout


def load_plan(path: str | FilePath, registry: PluginRegistry | None = None) -> Plan:
    """Read and check a topology file.  ``PlanError`` has all its mistakes."""
    return make_plan(read_file(path), registry or PluginRegistry.load())


def plan_of_text(text: str, registry: PluginRegistry, name: str = "<topology>") -> Plan:
    """Check a topology that is not in a file."""
    return make_plan(read_text(text, name), registry)


def make_plan(file: TopologyFile, registry: PluginRegistry) -> Plan:
    """Return the plan of a file that was read; ``PlanError`` has all mistakes."""
    plan, _ = check(file, registry)
    if file.complaints:
        raise PlanError(sorted(file.complaints, key=line_of))
    return plan


def check(file: TopologyFile, registry: PluginRegistry) -> tuple[Plan, Checker]:
    """Add all mistakes of a file to its complaints; return its plan, and what the checker knows of it."""
    checker = Checker(file, registry)
    plan = checker.plan()
    # Reading the file has made complaints of its own, about variables.  ``plan`` has added the others.
    if not file.complaints:
        file.complaints += [_with_line(file, text) for text in registry.check_plan(plan)]
    return plan, checker


def _with_line(file: TopologyFile, complaint: str) -> str:
    place = place_of(complaint)
    return f"{file.name}:{file.line(place)}: {complaint}" if place else f"{file.name}: {complaint}"


def place_of(complaint: str) -> Path:
    """Return the table of the engine that a complaint of a plugin is about; empty: it names none."""
    # A plugin knows no lines.  If its complaint begins with the name of an engine, it is about that engine's
    # table.
    named = _ENGINE.match(complaint)
    return ("engines", named[1]) if named else ()


def line_of(complaint: str) -> int:
    """Return the line that a complaint names, to sort by; 0 if it names none."""
    # ``NAME:LINE: text``, or ``NAME: text`` without a line, which comes first.
    number = complaint.split(":", 2)[1]
    return int(number) if number.isdigit() else 0


class Checker:
    """Checks the values of a file; adds complaints to it."""

    def __init__(self, file: TopologyFile, registry: PluginRegistry) -> None:
        self._file = file
        self._registry = registry
        # All names before any check: an engine names its thread, and a route its engines.
        self._left_out: list[str] = []
        self._threads = self._tables("threads")
        self._engines = self._tables("engines")
        self.made: list[tuple[Path, msgspec.Struct]] = []
        """The options of each engine without a mistake, and of each table of its kind's ``kind_tables``."""
        self._kinds: dict[Path, EngineKind] = {}
        """The kinds of engines without a mistake."""
        self._flows: dict[str, Flow] = {}
        """Which routes the engines can have.  Not those of APIs, nor of engines with mistakes."""

    def plan(self) -> Plan:
        """Return a plan of everything that has no mistake.  Look at the file's complaints before using it."""
        file = self._file
        for key in file.values:
            if key not in _SECTIONS:
                file.complain((key,), f"there is no section {key!r}; {nearest(key, _SECTIONS)}")
        # Engines before routes: a route is checked against what its engines can have (``_flows``).
        threads = [self._thread(name, table) for name, table in self._threads.items()]
        engines = [self._engine(name, table) for name, table in self._engines.items()]
        # A kernel made in Python may begin empty, since ``add_engine`` and ``host`` can fill it.  A misspelt
        # section has been reported above, so that "no engines" would be a second complaint about it.
        if not engines and not file.complaints and not file.from_python and not self._left_out:
            file.complain((), "there is no [engines.NAME] table, so nothing would run; add one")
        self._check_places()
        routes = self._routes()
        plan = Plan(
            threads=tuple(thread for thread in threads if thread),
            engines=tuple(engine for engine in engines if engine),
            routes=tuple(routes),
            file=file.name,
            left_out=tuple(sorted(self._left_out, key=line_of)),
        )
        if file.complaints:
            return plan
        # Only now, since an engine says from its options which shards it has, and all options are right.
        for engine in plan.engines:
            for shard in shards_of(engine, self._registry):
                place: Path = ("engines", engine.name, "shards")
                self._check_thread(place, engine.name, shard.thread or "", is_api=False)
        return with_shards(plan, self._registry)

    def _leave_out(self, path: Path, text: str) -> None:
        self._left_out.append(f"{self._file.name}:{self._file.line(path)}: {text}")

    def _tables(self, section: str) -> dict[str, dict[str, Any]]:
        """Return the ``[section.NAME]`` tables."""
        tables = self._file.values.get(section, {})
        if not isinstance(tables, dict):
            self._file.complain((section,), f"{section!r} must consist of tables; write [{section}.NAME]")
            return {}
        for name, table in tables.items():
            if not isinstance(table, dict):
                self._file.complain(
                    (section, name), f"{section}.{name} must be a table; write [{section}.{name}]"
                )
        present: dict[str, dict[str, Any]] = {}
        for name, table in tables.items():
            if not isinstance(table, dict):
                continue
            # Before all other checks: what is left out is not looked at any further, whatever else is wrong
            # in it.
            path: Path = (section, name)
            why = "its 'when' is empty" if path in self._file.left_out else ""
            if section == "engines" and not why:
                why = self._missing_kind(path, table)
            if why:
                self._file.left_out.add(path)
                self._leave_out(path, f"engine {name!r} is left out, because {why}")
            else:
                present[name] = table
        return present

    def _missing_kind(self, path: Path, table: dict[str, Any]) -> str:
        """Return why an optional engine cannot be made.

        Empty: it is not optional, or its kind is installed.
        """
        kind = table.get("kind")
        # Without ``optional`` an engine whose kind is missing stays: ``_engine`` complains of it, with a
        # hint.
        if table.get("optional") is not True or not isinstance(kind, str) or self._installed(kind, table):
            return ""
        shown = self._file.shown((*path, "kind"), kind)
        return f"its kind {shown} is not installed; {self._registry.hint('engines', kind)}"

    def _installed(self, kind: str, table: dict[str, Any]) -> Installed | None:
        # The transport of the address may choose another kind than the one written, as ``sctp`` does.
        return self._registry.engine_for(kind, table) or self._registry.apis.get(kind)

    # ------------------------------------------------------------------ threads and engines

    def _thread(self, name: str, table: dict[str, Any]) -> ThreadPlan | None:
        path: Path = ("threads", name)
        kind_name = self._text(path, table, "kind", "poll")
        if kind_name is None:
            return None
        installed = self._registry.thread_kinds.get(kind_name)
        if installed is None:
            self._unknown((*path, "kind"), "thread_kinds", "thread kind", kind_name)
            return None
        options = self._options(path, table, installed.kind.options_class(), {"kind"})
        return ThreadPlan(name=name, kind=kind_name, options=options, line=self._file.line(path))

    def _engine(self, name: str, table: dict[str, Any]) -> EnginePlan | None:
        path: Path = ("engines", name)
        # Before the kind, so that a ``thread`` that is not text is also reported if the kind is missing.
        thread = self._text(path, table, "thread", "")
        self._text(path, table, "when", "")
        if not isinstance(table.get("optional", False), bool):
            self._file.complain((*path, "optional"), f"[engines.{name}] optional: must be true or false")
        kind_name = self._text(path, table, "kind", None)
        if kind_name is None:
            # A kind that is not text has been reported by ``_text``.
            if "kind" not in table:
                known = sorted({*self._registry.engines, *self._registry.apis})
                self._file.complain(
                    path, f"[engines.{name}] lacks 'kind'; installed: {', '.join(known) or 'none'}"
                )
            return None
        installed = self._installed(kind_name, table)
        if installed is None:
            self._unknown((*path, "kind"), "engines", "engine kind", kind_name)
            return None
        if thread:
            self._check_thread((*path, "thread"), name, thread, is_api=kind_name in self._registry.apis)
        before = len(self._file.complaints)
        options = self._options(
            path, table, installed.kind.options_class(), {"kind", "thread", "when", "optional"}
        )
        # Only an engine with an option ``protocol`` takes the protocol from its address.  Others, as
        # ``amqp``, have one built in, and the part of their address before ``+`` names no plugin.
        if "protocol" in installed.kind.options_class().__struct_fields__:
            self._check_protocol(path, options)
        # Only engine kinds have it, and this may be the kind of an API.
        for tables in getattr(installed.kind, "kind_tables", ()):
            self._check_kind_tables(path, options, tables)
        if len(self._file.complaints) == before:
            made = self._make(path, options, installed.kind.options_class())
            if isinstance(installed.kind, EngineKind):
                self._kinds[path] = installed.kind
                self._flows[name] = installed.kind.flow(made)
                self._ask_kind(path, installed.kind, made)
        return EnginePlan(
            name=name, kind=kind_name, thread=thread or None, options=options, line=self._file.line(path)
        )

    def _ask_kind(self, path: Path, kind: EngineKind, made: msgspec.Struct) -> None:
        """Have a kind look at options for what their class could not find."""
        if kind.mistakes is None:
            return
        where = f"[{'.'.join(map(str, path))}]"
        for inside, text in kind.mistakes(made, self._registry.kinds):
            place, told = without_secrets(self._file, path, (*path, *inside), text)
            self._file.complain(place, f"{where} {told}")

    def mistakes_in_files(self, path: Path, made: msgspec.Struct) -> Iterator[tuple[Path, str]]:
        """Return the option and the complaint for each mistake in a file that an engine reads."""
        kind = self._kinds.get(path)
        if kind is not None and kind.mistakes_in_files is not None:
            for key, text in kind.mistakes_in_files(made, self._registry.kinds):
                place = (*path, key)
                yield place, f"{self._file.shown(place, getattr(made, key))}: {text}"

    def _check_thread(self, place: Path, name: str, thread: str, *, is_api: bool) -> None:
        shown = self._file.shown(place, thread)
        known = set(self._threads)
        # A file without a thread in the process of the kernel gets one, and an engine may name it.
        if all(is_apart(str(table.get("kind", "poll")), self._registry) for table in self._threads.values()):
            known.add(DEFAULT_THREAD)
        if is_api:
            self._file.complain(
                place,
                f"[engines.{name}] is opened by application code and runs in its caller's thread; remove 'thread'",
            )
        elif thread not in known:
            self._file.complain(
                place,
                f"[engines.{name}] names thread {shown}, which does not exist; {nearest(thread, known)}",
            )

    def _check_protocol(self, path: Path, options: dict[str, Any]) -> None:
        """Check that ``protocol+transport://place`` names an installed protocol, with options of its own."""
        # An address without "+" is not looked at: the kind's own class checks it and says what it expects.
        address = options.get("address")
        scheme, separator, _ = address.partition("://") if isinstance(address, str) else ("", "", "")
        if not separator or "+" not in scheme:
            return
        name = scheme.partition("+")[0]
        installed = self._registry.protocols.get(name)
        if installed is None:
            self._unknown((*path, "address"), "protocols", "protocol", name)
        # The engine's options class takes any table as ``protocol``, since it cannot know which protocol the
        # address names.  So the table is checked here, against the options class of that protocol.
        elif isinstance(options.get("protocol"), dict):
            place = (*path, "protocol")
            where = f"[{'.'.join(map(str, place))}]"
            options["protocol"] = check_options(
                self._file, place, options["protocol"], installed.kind.options_class(), where
            )

    def _check_kind_tables(self, path: Path, options: dict[str, Any], tables: KindTables) -> None:
        """Check each table of a list against the options of the kind that it names."""
        known = self._registry.kinds(tables.group)
        listed = options.get(tables.field)
        # A tuple if a value in it is from the environment, or the plan is made in Python: it was converted.
        # Anything else is missing, or was reported already.
        if not isinstance(listed, list | tuple) or not all(isinstance(table, dict) for table in listed):
            return
        checked: list[dict[str, Any]] = []
        for number, table in enumerate(listed):
            place = (*path, tables.field, number)
            where = f"[{'.'.join(map(str, place))}]"
            name = table.get(tables.key)
            kind = known.get(name) if isinstance(name, str) else None
            if kind is None:
                here = (*place, tables.key) if tables.key in table else place
                noun = tables.group.noun
                shown = self._file.shown(here, name)
                text = (
                    f"lacks {tables.key!r}, a {noun}" if name is None else f"names the unknown {noun} {shown}"
                )
                self._file.complain(here, f"{where} {text}; {nearest(str(name), known)}")
                continue
            rest = {key: value for key, value in table.items() if key != tables.key}
            before = len(self._file.complaints)
            rest = check_options(self._file, place, rest, kind.options_class(), where, (tables.key,))
            if len(self._file.complaints) == before:
                # These have places and files, too: the listeners of a broker are such tables.
                self._make(place, rest, kind.options_class())
            checked.append({tables.key: name, **rest})
        # Converted values replace the table only if every one of them is good: otherwise there is no plan.
        if len(checked) == len(listed):
            options[tables.field] = checked

    def _make(self, path: Path, options: dict[str, Any], kind: type[msgspec.Struct]) -> msgspec.Struct:
        """Return options that were found right as an object of their class, and note it."""
        # What was converted is used to ask options classes about places, files and routes
        # (``contracts/options.py``). The plan keeps the values of the file.
        made = msgspec.convert(options, kind, strict=False)
        self.made.append((path, made))
        return made

    def _check_places(self) -> None:
        """Check that no two listeners have the same place, unless they are of one engine that shares it."""
        # Each pair is compared: places overlap without being equal, as one of every interface does with any
        # other.
        places = [(path, key, place) for path, made in self.made for key, place in listening_places(made)]
        for number, (path, key, place) in enumerate(places):
            for other_path, other_key, other in places[:number]:
                # The first two parts of a path name the engine.
                shared = path[:2] == other_path[:2] and place.shares_with(other)
                if place.overlaps(other) and not shared:
                    other_at = (*other_path, other_key)
                    whose = f"[{'.'.join(map(str, other_path))}]"
                    line = "" if self._file.from_python else f", line {self._file.line(other_at)}"
                    shown = self._file.shown((*path, key), str(place))
                    self._file.complain(
                        (*path, key),
                        f"[{'.'.join(map(str, path))}] {key}: {whose}{line}, listens at {shown} too; "
                        "choose another place for one of them",
                    )
                    break

    # ------------------------------------------------------------------ routes

    def _routes(self) -> list[RoutePlan]:
        tables = self._file.values.get("routes", [])
        if isinstance(tables, dict):
            self._file.complain(
                ("routes",),
                "[routes] is a single table, and a file has any number of routes; write [[routes]]",
            )
            return []
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            self._file.complain(("routes",), "'routes' must be a list of tables; write [[routes]]")
            return []
        routes: list[RoutePlan] = []
        for number, table in enumerate(tables):
            path: Path = ("routes", number)
            if path in self._file.left_out:
                self._leave_out(path, "this route is left out, because its 'when' is empty")
                continue
            rest = self._without_left_out(path, table)
            route = None if rest is None else self._route(path, rest)
            if route is None:
                continue
            # Every route that fits gets the message, so two equal ones deliver it twice.
            twin = next((known for known in routes if _same(known, route)), None)
            # In a plan made in Python it is no mistake, as two equal calls of ``Kernel.add_route`` are none.
            if twin is None or self._file.from_python:
                routes.append(route)
            else:
                text = f"this route equals that of line {twin.line}, so each message would come twice; remove one"
                self._file.complain(("routes", number), text)
        return routes

    def _without_left_out(self, path: Path, table: dict[str, Any]) -> dict[str, Any] | None:
        """Return a route without the engines that are left out; None if it has nothing to connect then."""
        # ``from`` and ``to`` may be of any type: they are not checked yet.
        to = table.get("to")
        targets = to if isinstance(to, list | tuple) else [to]
        present = [target for target in targets if not self._is_left_out(target)]
        absent = [target for target in targets if self._is_left_out(target)]
        if self._is_left_out(table.get("from")):
            self._leave_out(path, f"this route is left out with engine {table['from']!r}")
            return None
        if absent and not present:
            names = ", ".join(map(repr, absent))
            self._leave_out(path, f"this route is left out with engine {names}")
            return None
        rest = dict(table)
        if absent:
            names = ", ".join(map(repr, absent))
            self._leave_out(path, f"this route does not lead to engine {names}, which is left out")
            rest["to"] = present
        if self._is_left_out(table.get("dead_letters")):
            self._leave_out(
                path, f"this route has no dead letters: engine {rest.pop('dead_letters')!r} is left out"
            )
        return rest

    def _is_left_out(self, name: Any) -> bool:
        return isinstance(name, str) and ("engines", name) in self._file.left_out

    def _route(self, path: Path, table: dict[str, Any]) -> RoutePlan | None:
        before = len(self._file.complaints)
        checked = check_options(self._file, path, table, _RouteTable, "[[routes]]")
        if len(self._file.complaints) > before:
            # A route with a misspelt key may have misspelt names too, and the user wants to see both.
            self._check_ends(path, table)
            return None
        # ``checked`` and not ``table``, from here on: values from the environment are converted in it.
        read = msgspec.convert(checked, _RouteTable)
        self._check_ends(path, checked)
        router = self._registry.routers.get(read.router)
        options = read.options
        if router is None:
            self._unknown((*path, "router"), "routers", "router", read.router)
        else:
            where = f"[routes.options] of router {read.router!r}"
            options = check_options(
                self._file, (*path, "options"), options, router.kind.options_class(), where
            )
        marks = self._marks(path, read)
        if len(self._file.complaints) > before:
            return None
        return RoutePlan(
            source=read.source,
            targets=_tuple(read.to),
            match=_tuple(read.match),
            exchange=read.exchange,
            router=read.router,
            router_options=options,
            confirm=read.confirm,
            echo=read.echo,
            dead_letters=read.dead_letters,
            marks=marks,
            line=self._file.line(path),
        )

    def _marks(self, path: Path, read: _RouteTable) -> WaterMarks:
        def complain(key: str, text: str) -> None:
            self._file.complain((*path, key), text)

        if read.confirm and read.when_full != "block":
            complain(
                "when_full",
                f"when_full = {read.when_full!r} drops messages, and confirm = true promises to lose none; "
                "remove one of them",
            )
        for key in ("high", "high_bytes"):
            if getattr(read, key) < 1:
                complain(key, f"[[routes]] {key} = {getattr(read, key)}: must be at least 1")
        # "not >=", because "<" is also false of ``nan``, which TOML can write.
        if not read.stall_timeout >= 0:
            complain(
                "stall_timeout", f"[[routes]] stall_timeout = {read.stall_timeout}: must be 0 or more seconds"
            )
        return WaterMarks(
            high=read.high,
            high_bytes=read.high_bytes,
            when_full=read.when_full,
            stall_timeout=read.stall_timeout,
        )

    def _check_ends(self, path: Path, table: dict[str, Any]) -> None:
        """Check that a route begins and ends at engines, each of them once."""
        # The table may have failed its check, so that any value may be of any type.
        source, to = table.get("from"), table.get("to")
        if isinstance(source, str):
            self._check_end((*path, "from"), "begins at", source)
        targets = [to] if isinstance(to, str) else to if isinstance(to, list | tuple) else []
        if isinstance(to, list | tuple) and not to:
            self._file.complain((*path, "to"), "'to' is empty, so this route leads nowhere; name an engine")
        if isinstance(source, str) and not self.flow_of(source).gives:
            shown = self._file.shown((*path, "from"), source)
            self._file.complain(
                (*path, "from"),
                f"this route begins at {shown}, which {self._what(source)} and sends nothing; remove the route, "
                "or name an engine that sends messages",
            )
        for number, target in enumerate(targets):
            if not isinstance(target, str):
                continue
            place: Path = (*path, "to") if isinstance(to, str) else (*path, "to", number)
            self._check_end(place, "leads to", target)
            self._check_taker(place, "leads to", target)
            if target in targets[:number]:
                shown = self._file.shown(place, target)
                self._file.complain(place, f"this route leads to {shown} twice; remove one of them")

        letters = table.get("dead_letters")
        if isinstance(letters, str):
            self._check_end((*path, "dead_letters"), "sends dead letters to", letters)
            self._check_taker((*path, "dead_letters"), "sends dead letters to", letters)
            if letters == source or letters in targets:
                shown = self._file.shown((*path, "dead_letters"), letters)
                self._file.complain(
                    (*path, "dead_letters"), f"{shown} is itself an end of this route; name another engine"
                )
            if not table.get("confirm"):
                self._file.complain(
                    (*path, "dead_letters"),
                    "dead_letters needs confirm = true: only a message that has to be confirmed can be refused",
                )

    def _check_end(self, path: Path, verb: str, name: str) -> None:
        if self._file.from_python:
            # In Python an engine may be opened or added later.
            return
        # An ``engines.NAME`` that is not a table has been reported; it still counts as a name.
        engines = self._file.values.get("engines")
        if name not in self._engines and not (isinstance(engines, dict) and name in engines):
            shown = self._file.shown(path, name)
            hint = nearest(name, self._engines)
            self._file.complain(path, f"this route {verb} {shown}, which is no engine of this file; {hint}")

    def _check_taker(self, path: Path, verb: str, name: str) -> None:
        if not self.flow_of(name).takes:
            shown = self._file.shown(path, name)
            self._file.complain(
                path,
                f"this route {verb} {shown}, which {self._what(name)} and takes no messages; remove the route, "
                "or name an engine that takes messages",
            )

    def flow_of(self, name: str) -> Flow:
        """Return which routes an engine can have: any, if that is not known."""
        return self._flows.get(name, _ANY_FLOW)

    def _what(self, name: str) -> str:
        why = self.flow_of(name).why
        return f"is of kind {self._engines[name]['kind']!r}" + (f" with {why}" if why else "")

    # ------------------------------------------------------------------ helpers

    def _options(
        self, path: Path, table: dict[str, Any], options: type[msgspec.Struct], own: set[str]
    ) -> dict[str, Any]:
        values = {key: value for key, value in table.items() if key not in own}
        return check_options(self._file, path, values, options, f"[{'.'.join(map(str, path))}]", own)

    def _text(self, path: Path, table: dict[str, Any], key: str, default: str | None) -> str | None:
        value = table.get(key, default)
        if value is None or isinstance(value, str):
            return value
        self._file.complain((*path, key), f"[{'.'.join(map(str, path))}] {key}: must be text")
        return None

    def _unknown(self, path: Path, group: str, noun: str, name: str) -> None:
        shown = self._file.shown(path, name)
        self._file.complain(path, f"unknown {noun} {shown}; {self._registry.hint(group, name)}")


def listening_places(made: msgspec.Struct) -> list[tuple[str, ListeningPlace]]:
    """Return where an engine with these options listens, with the options that say so."""
    return list(made.listens_at()) if isinstance(made, Listens) else []


def _same(one: RoutePlan, other: RoutePlan) -> bool:
    return msgspec.structs.replace(one, line=0) == msgspec.structs.replace(other, line=0)


def _tuple(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value
