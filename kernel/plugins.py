"""Plugins: finds the installed plugins, registers their kinds, and says why some were refused.

A plugin is a module that an entry point of the group ``kernel.plugins`` announces.  The plugins of this
distribution are found in the same way.  pluggy's own loader stops at the first plugin that raises, and does
not say which one it was.  So this module loads plugins itself: one that fails is refused, with its name, its
distribution and the reason, and the others are loaded.  Either everything that a plugin registers is taken,
or nothing.

Only this module calls hooks.  There is a typed method for each.  A plugin may announce groups of kinds of its
own, which other plugins then register.  Plugins that announce groups are loaded first.

The environment variable ``KERNEL_PLUGINS`` says what is loaded: ``backend,stream`` only those, ``-amqp`` all
but that. Each kernel makes a registry of its own.  Kernels of one process share only the knowledge of which
plugins are installed.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib import metadata
from types import FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import msgspec
import pluggy

from kernel import API_LEVEL, builtin_kinds, hookspecs
from kernel.contracts.errors import PluginError, UnknownName, similar
from kernel.contracts.kinds import (
    REGISTER,
    AnyKind,
    ApiKind,
    Asked,
    CommandKind,
    DissectorKind,
    EngineKind,
    Kind,
    KindGroup,
    ProtocolKind,
    RouterKind,
    Side,
    Table,
    ThreadKind,
    WalkKind,
)
from kernel.own_plugins import hidden_by

if TYPE_CHECKING:
    from kernel.topology.plan import Plan
    from kernel.topology.system import Kernel

GROUP = "kernel.plugins"
OUR_DISTRIBUTION = "messaging-kernel"

GROUPS: tuple[KindGroup[Any], ...] = (
    KindGroup(hook=hookspecs.register_protocols, kind=ProtocolKind, noun="protocol", title="Protocols"),
    KindGroup(
        hook=hookspecs.register_engines,
        kind=EngineKind,
        noun="engine kind",
        title="Engines",
        listed_as="engine",
    ),
    KindGroup(hook=hookspecs.register_routers, kind=RouterKind, noun="router", title="Routers"),
    KindGroup(
        hook=hookspecs.register_thread_kinds, kind=ThreadKind, noun="thread kind", title="Thread kinds"
    ),
    KindGroup(
        hook=hookspecs.register_apis,
        kind=ApiKind,
        noun="api",
        title="APIs",
    ),
    KindGroup(hook=hookspecs.register_commands, kind=CommandKind, noun="command", title="Commands"),
    KindGroup(hook=hookspecs.register_dissectors, kind=DissectorKind, noun="dissector", title="Dissectors"),
    KindGroup(hook=hookspecs.register_walks, kind=WalkKind, noun="walk", title="Walks"),
)
"""The kernel's own groups.  Plugins announce others with ``register_kind_groups``."""
_ONE_NAMESPACE = {"engines", "apis"}
"""``kind`` in an ``[engines.NAME]`` table may name one of either group, so no name may be in both."""

_VARIABLE = "KERNEL_PLUGINS"
"""The environment variable that selects plugins."""
_ANNOUNCE = "register_kind_groups"

_log = logging.getLogger(__name__)


class Origin(msgspec.Struct, frozen=True):
    """The plugin and the distribution that something comes from."""

    plugin: str
    distribution: str
    version: str

    def __str__(self) -> str:
        return f"plugin {self.plugin!r} of {self.distribution} {self.version}"


class Installed(msgspec.Struct, frozen=True):
    """A kind, and the plugin that registered it."""

    kind: Any
    origin: Origin


class Refused(msgspec.Struct, frozen=True):
    """A plugin that was not loaded, and why."""

    origin: Origin
    reason: str

    def __str__(self) -> str:
        # Of one that is not installed there is no distribution to name.
        if self.origin.distribution == _VARIABLE:
            return self.reason
        return f"{self.origin} is refused: {self.reason}"


class PluginRegistry:
    """The kinds that are installed.  Its dictionaries map names to :class:`Installed`."""

    def __init__(self) -> None:
        self.groups: dict[str, KindGroup[Any]] = {group.name: group for group in GROUPS}
        """The kernel's groups of kinds and those that plugins have announced, by name."""
        self.protocols: dict[str, Installed] = {}
        self.engines: dict[str, Installed] = {}
        self.routers: dict[str, Installed] = {}
        self.thread_kinds: dict[str, Installed] = {}
        self.apis: dict[str, Installed] = {}
        self.commands: dict[str, Installed] = {}
        self.dissectors: dict[str, Installed] = {}
        self.walks: dict[str, Installed] = {}
        self.plugins: dict[str, Origin] = {}
        self._left_out: set[str] = set()
        """Plugins that are installed, and that ``KERNEL_PLUGINS`` leaves out."""
        self.refused: list[Refused] = []
        # The kernel's own groups are attributes as well: both are the same dictionaries. Groups that plugins
        # announce are in ``_tables`` only (``group``).
        self._tables: dict[str, dict[str, Installed]] = {name: getattr(self, name) for name in self.groups}
        self._manager = _PluginManager("kernel")
        self._manager.add_hookspecs(hookspecs)

    @classmethod
    def load(
        cls,
        entry_points: Iterable[metadata.EntryPoint] | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> PluginRegistry:
        """Load the kernel's own kinds and every installed plugin that ``KERNEL_PLUGINS`` does not exclude."""
        found, our_version = (
            _installed(_state_of_path())
            if entry_points is None
            else (_with_origins(entry_points), _our_version())
        )
        registry = cls()
        # First, so that no plugin can take the name of one of the kernel's kinds.
        registry.add(builtin_kinds, Origin("builtin", OUR_DISTRIBUTION, our_version))
        wanted = _Selection.parse(environ.get(_VARIABLE, ""))
        registry._left_out = {origin.plugin for origin, _ in found if not wanted.has(origin.plugin)}
        # All are imported before any is registered: only the module shows whether it announces groups.
        imported = [
            (origin, module)
            for origin, point in found
            if wanted.has(origin.plugin) and (module := registry._import(origin, point)) is not None
        ]
        # Plugins that announce groups come first: pluggy has to know a hook before a plugin implements it.
        imported.sort(key=lambda pair: not hasattr(pair[1], _ANNOUNCE))
        for origin, module in imported:
            with registry._refusing(origin):
                registry.add(module, origin)
        # A misspelt name would otherwise leave out a plugin without a word.
        for name in wanted.unknown(origin.plugin for origin, _ in found):
            reason = f"{_VARIABLE} names {name!r}, which is not installed"
            registry._refuse(Origin(name, _VARIABLE, ""), reason)
        return registry

    # ------------------------------------------------------------------ look-ups

    def group(self, group: str) -> dict[str, Installed]:
        """Return the kinds of a group by name (one of ``groups``)."""
        return self._tables[group]

    def kinds(self, group: KindGroup[AnyKind]) -> dict[str, AnyKind]:
        """Return the kinds that plugins have registered for a group; none if no plugin announces it."""
        # The group and not only its name, which the group of another plugin may have.
        if self.groups.get(group.name) != group:
            return {}
        return {name: installed.kind for name, installed in self._tables[group.name].items()}

    def tables(self) -> dict[str, Table]:
        """Return the tables of all engine kinds, by name.

        Tables of one name are merged, with the columns of all.
        """
        tables: dict[str, Table] = {}
        for installed in self.engines.values():
            for table in installed.kind.tables:
                known = tables.setdefault(table.name, table)
                others = (column for column in table.columns if column not in known.columns)
                tables[table.name] = msgspec.structs.replace(known, columns=(*known.columns, *others))
        return tables

    def asked(self, operation: str) -> dict[str, Asked]:
        """Return with what engines of any kind can be asked for an operation, by name."""
        asked: dict[str, Asked] = {}
        for installed in self.engines.values():
            for each in installed.kind.asked.get(operation, ()):
                asked.setdefault(each.name, each)
        return asked

    def kind(self, group: str, name: str) -> Any:
        """Return a kind.

        Raises ``UnknownName``, which has similar names or says why the plugin was refused.
        """
        installed = self.group(group).get(name)
        if installed is None:
            raise UnknownName(f"unknown {self.groups[group].noun} {name!r}; {self.hint(group, name)}")
        return installed.kind

    def engine_for(self, name: str, options: Mapping[str, Any]) -> Installed | None:
        """Return the engine kind for ``kind = name`` and these options; None if there is none.

        An address with a transport of another kind (``EngineKind.transports``) takes precedence over the
        name.
        """
        address = options.get("address")
        # Options may be of any type here: a file is asked for the kinds of its engines before it is checked.
        scheme, separator, _ = address.partition("://") if isinstance(address, str) else ("", "", "")
        transport = scheme.rpartition("+")[2]
        # Only for a name that is an engine kind: an API that takes an address stays the API that it is.
        if separator and name in self.engines:
            for installed in self.engines.values():
                if transport in installed.kind.transports:
                    return installed
        return self.engines.get(name)

    def protocol_maker(self) -> Callable[[str, dict[str, Any], Side], Any]:
        """Return ``make_protocol(kind_name, options, side)``.  It converts each options object only once."""
        # By identity, since a dict cannot be hashed. The options are kept with the result: a new dict could
        # otherwise get the number of one that is gone, and be taken for it.
        # Each engine and each API has a function of its own, so that no two threads share this dictionary.
        converted: dict[tuple[str, int], tuple[dict[str, Any], Any]] = {}
        looked_at: set[type] = set()

        def make_protocol(name: str, options: dict[str, Any], side: Side) -> Any:
            kind = self.kind("protocols", name)
            known = converted.get((name, id(options)))
            if known is None:
                checked = msgspec.convert(options, kind.options_class(), strict=False)
                known = converted[name, id(options)] = options, checked
            made = kind.create(known[1], side)
            if type(made) not in looked_at:
                self._refuse_mistakes(name, made)
                looked_at.add(type(made))
            return made

        return make_protocol

    def _refuse_mistakes(self, name: str, protocol: Any) -> None:
        """Raise ``PluginError`` if what a kind has made is no stream protocol."""
        from kernel.hosting.protocol_mistakes import mistake_of

        if mistake := mistake_of(protocol):
            raise PluginError(f"protocol {name!r} of {self.protocols[name].origin}: {mistake}")

    def modules(self) -> dict[str, str]:
        """Return the modules of the plugins, by name; without plugins that are no modules."""
        # For processes that host engines: there each module is imported by its name
        # (``ThreadSetup.plugins``).
        found = ((name, self._manager.get_plugin(name)) for name in self.plugins)
        return {name: module.__name__ for name, module in found if isinstance(module, ModuleType)}

    def hint(self, group: str, name: str) -> str:
        """Return a sentence that helps with an unknown name."""
        # By the name of the plugin, since nobody knows the kinds of one that was not loaded.  Many plugins
        # have the name of their main kind.
        for refused in self.refused:
            if refused.origin.plugin == name:
                return str(refused)
        if name in self._left_out:
            return f"plugin {name!r} is installed, and {_VARIABLE} leaves it out; change that variable"
        groups = ("engines", "apis") if group in _ONE_NAMESPACE else (group,)
        known = sorted(known for each in groups for known in self.group(each))
        if near := similar(name, known):
            return f"did you mean {near!r}?"
        installed = f"installed: {', '.join(known) or 'none'}"
        # The plugin of the kind may have another name, and then it is not known which of these it is.
        if self.refused:
            return f"{installed}; not loaded: {'; '.join(map(str, self.refused))}"
        return installed

    # ------------------------------------------------------------------ loading

    def add(self, module: ModuleType | object, origin: Origin) -> None:
        """Register all kinds of a plugin module, or raise ``PluginError`` and register nothing."""
        if origin.plugin in self.plugins:
            raise PluginError(f"there is a plugin of that name already: {self.plugins[origin.plugin]}")
        # Before its hooks are called: they may use what this kernel does not have.
        level = getattr(module, "REQUIRES_API_LEVEL", 1)
        if not isinstance(level, int) or level > API_LEVEL:
            raise PluginError(f"it requires API level {level}; this kernel has {API_LEVEL}")
        announced: list[KindGroup[Any]] = []
        try:
            self._manager.register(module, name=origin.plugin)
            for group in self._call_alone(origin.plugin, _ANNOUNCE):
                if self._is_new(group):
                    announced.append(group)
                    self._announce(group)
            # Refuses hooks that nobody has announced, such as misspelt ones.  After ``_announce``, because a
            # plugin may implement the hook of its own group.
            self._manager.check_pending()
            kinds = self._collect(origin.plugin)
            # Before anything is entered in the tables: either all of the plugin's kinds are taken, or none.
            self._refuse_duplicates(kinds)
        # Also an interrupt: half a plugin must not stay, whatever ended its hook.
        except BaseException as error:
            # Everything that was done above is undone, in the reverse order: otherwise hooks of a refused
            # plugin would still be called.
            if self._manager.get_plugin(origin.plugin) is not None:
                self._manager.unregister(name=origin.plugin)
            for group in announced:
                self._withdraw(group)
            if isinstance(error, pluggy.PluginValidationError):
                raise PluginError(_one_line(error)) from error
            raise
        self.plugins[origin.plugin] = origin
        for name, kind in kinds:
            self._tables[name][kind.name] = Installed(kind, origin)

    def _import(self, origin: Origin, point: metadata.EntryPoint) -> Any:
        """Return the module of a plugin; None if it is refused."""
        with self._refusing(origin):
            return point.load()
        return None

    @contextmanager
    def _refusing(self, origin: Origin) -> Iterator[None]:
        """Refuse the plugin by name if it raises anything."""
        try:
            yield
        except PluginError as error:
            self._refuse(origin, str(error))
        except ImportError as error:
            reason = f"{type(error).__name__}: {_one_line(error)}"
            hider = hidden_by(error) if origin.distribution == OUR_DISTRIBUTION else ""
            if hider:
                reason += f"; {hider} hides the package of that name of {OUR_DISTRIBUTION}: rename it"
            self._refuse(origin, reason)
        except (Exception, SystemExit) as error:
            # A plugin is foreign code. It may raise anything while it is imported, and may even call
            # ``sys.exit``.
            self._refuse(origin, f"{type(error).__name__}: {_one_line(error)}")

    def _refuse(self, origin: Origin, reason: str) -> None:
        refused = Refused(origin, reason)
        self.refused.append(refused)
        # Not a warning: commands show themselves what was refused (``kernel run``, ``kernel plugins``), and
        # so does the error of whoever needs it (``hint``).
        _log.info("%s", refused)

    def _is_new(self, group: Any) -> bool:
        """Check a group that a plugin announces; return whether it is new.

        Several plugins may announce the same.
        """
        if not isinstance(group, KindGroup):
            raise PluginError(f"its {_ANNOUNCE} returned a {type(group).__name__}, not a KindGroup")
        if not hasattr(group.hook, "kernel_spec") or not group.hook.__name__.startswith(REGISTER):
            raise PluginError(
                f"the hook {group.hook.__name__!r} of its group is not a function marked with kernel.hookspec "
                f"whose name begins with {REGISTER!r}"
            )
        known = self.groups.get(group.name)
        if known is not None and known != group:
            raise PluginError(f"there is a group of kinds {group.name!r} already")
        if known is None and hasattr(self._manager.hook, group.hook.__name__) and self._has_spec(group):
            raise PluginError(f"there is a hook {group.hook.__name__!r} already")
        # Several may announce it, so that each can be installed without the others.
        return known is None

    def _has_spec(self, group: KindGroup[Any]) -> bool:
        # pluggy also makes the attribute for a hook without a specification that a plugin implements, as one
        # that announces a group may do with its hook.
        caller: pluggy.HookCaller = getattr(self._manager.hook, group.hook.__name__)
        return caller.has_spec()

    def _announce(self, group: KindGroup[Any]) -> None:
        """Add the hook of a group, for this plugin and those that are loaded later."""
        self.groups[group.name] = group
        self._tables[group.name] = {}
        # pluggy reads specifications from the attributes of an object.
        specifications = ModuleType(group.name)
        setattr(specifications, group.hook.__name__, group.hook)
        self._manager.add_hookspecs(specifications)

    def _withdraw(self, group: KindGroup[Any]) -> None:
        """Remove a group whose plugin is refused.

        pluggy has no function that removes a hook.  But it finds hooks by attribute, so deleting the
        attribute does it.
        """
        del self.groups[group.name], self._tables[group.name]
        if hasattr(self._manager.hook, group.hook.__name__):
            delattr(self._manager.hook, group.hook.__name__)

    def _collect(self, plugin: str) -> list[tuple[str, Any]]:
        """Return the kinds of one plugin, each with the name of its group, after checks."""
        # Most plugins implement one hook or two of a dozen.
        callers = self._manager.get_hookcallers(self._manager.get_plugin(plugin)) or []
        implemented = {caller.name for caller in callers}
        return [
            (name, _checked(group.hook.__name__, kind, group.kind))
            for name, group in self.groups.items()
            if group.hook.__name__ in implemented
            for kind in self._call_alone(plugin, group.hook.__name__)
        ]

    def _call_alone(self, plugin: str, hook: str) -> list[Any]:
        """Call a register hook of one plugin only; return its kinds."""
        # pluggy calls a hook of all plugins at once, and one that raises ends the call. So each plugin is
        # called by itself.  Most plugins have few hooks, and one that has
        # nothing for a hook need not be called.
        implementations = getattr(self._manager.hook, hook).get_hookimpls()
        if all(implementation.plugin_name != plugin for implementation in implementations):
            return []
        others = [module for name, module in self._manager.list_name_plugin() if name != plugin]
        caller = self._manager.subset_hook_caller(hook, remove_plugins=others)
        return [kind for answer in caller() for kind in _iterate(hook, answer)]

    def _refuse_duplicates(self, kinds: Sequence[tuple[str, Any]]) -> None:
        seen: set[tuple[str, str]] = set()
        for group, kind in kinds:
            for rival in _ONE_NAMESPACE if group in _ONE_NAMESPACE else (group,):
                if kind.name in self.group(rival):
                    owner = self.group(rival)[kind.name].origin
                    raise PluginError(
                        f"its {self.groups[group].noun} {kind.name!r} exists already, from {owner}"
                    )
            space = "kinds" if group in _ONE_NAMESPACE else group
            if (space, kind.name) in seen:
                raise PluginError(f"it registers {self.groups[group].noun} {kind.name!r} twice")
            seen.add((space, kind.name))

    # ------------------------------------------------------------------ the other hooks, one method each

    def check_plan(self, plan: Plan) -> list[str]:
        """Return the complaints of all plugins about a plan."""
        return self._said_of("check_plan", plan)

    def warn_of_plan(self, plan: Plan) -> list[str]:
        """Return the warnings of all plugins about a plan."""
        return self._said_of("warn_of_plan", plan)

    def _said_of(self, hook: str, plan: Plan) -> list[str]:
        return [
            f"{text} ({origin})"
            for origin, answer in self._ask(hook, plan=plan)
            for text in (answer if isinstance(answer, list | tuple) else [f"{answer}"])
        ]

    def kernel_started(self, kernel: Kernel) -> None:
        """Tell all plugins that the engines are running."""
        self._ask("kernel_started", kernel=kernel)

    def kernel_stopping(self, kernel: Kernel, reason: str) -> None:
        """Tell all plugins that the kernel is about to stop."""
        self._ask("kernel_stopping", kernel=kernel, reason=reason)

    def _ask(self, hook: str, **arguments: Any) -> list[tuple[Origin, Any]]:
        """Call a hook of each plugin separately.

        If one raises, that is logged with its name, and the others are called.
        """
        modules = dict(self._manager.list_name_plugin())
        answers: list[tuple[Origin, Any]] = []
        for implementation in getattr(self._manager.hook, hook).get_hookimpls():
            plugin = implementation.plugin_name
            others = [module for name, module in modules.items() if name != plugin]
            caller = self._manager.subset_hook_caller(hook, remove_plugins=others)
            origin = self.plugins[plugin]
            try:
                answers += [(origin, _listed(answer)) for answer in caller(**arguments)]
            except Exception as error:
                # A plugin must not stop the kernel, and the others are still called.
                _log.exception("%s failed in %s", origin, hook)
                answers.append((origin, [f"failed in {hook}: {type(error).__name__}: {_one_line(error)}"]))
        return answers


class _PluginManager(pluggy.PluginManager):
    """Looks for hooks only where a hook may be.

    pluggy asks for the marks of each attribute, with much care for descriptors.  Most attributes of a plugin
    module are classes and functions that it has imported.
    """

    _MARKED = (FunctionType, MethodType, classmethod, staticmethod)

    def parse_hookimpl_opts(self, plugin: object, name: str) -> Any:
        if isinstance(plugin, ModuleType):
            value = vars(plugin).get(name)
            if not isinstance(value, self._MARKED):
                return None
            if isinstance(value, FunctionType) and f"{self.project_name}_impl" not in vars(value):
                return None
        return super().parse_hookimpl_opts(plugin, name)


# Names of plugins and not of kinds: what is left out is not even imported.
class _Selection(msgspec.Struct, frozen=True):
    """The content of ``KERNEL_PLUGINS``."""

    only: frozenset[str]
    without: frozenset[str]

    @classmethod
    def parse(cls, text: str) -> _Selection:
        names = [name.strip() for name in text.split(",") if name.strip()]
        return cls(
            frozenset(name for name in names if not name.startswith("-")),
            frozenset(name[1:] for name in names if name.startswith("-")),
        )

    def has(self, name: str) -> bool:
        return name not in self.without and (not self.only or name in self.only)

    def unknown(self, installed: Iterable[str]) -> list[str]:
        return sorted(self.only.difference(installed))


@lru_cache(maxsize=1)
def _installed(state: object) -> tuple[list[tuple[Origin, metadata.EntryPoint]], str]:
    """Return the entry points of the installed plugins with their origins, and our version.

    A look reads a file of each installed distribution.  With a hundred of them that takes 12 ms, half of the
    time of loading all plugins.  So kernels of one process share what was found, for as long as no
    distribution can have come or gone: ``state`` is ``_state_of_path()``.
    """
    return _with_origins(metadata.entry_points(group=GROUP)), _our_version()


def _state_of_path() -> tuple[object, ...]:
    """Return a value that changes when a distribution is installed or removed.

    Both add or delete a folder in a folder of ``sys.path``.  Python's own finder relies on that, too.
    """
    # The finders as well, since ``importlib.metadata`` asks each of them for distributions.
    return *((path, _modified(path)) for path in sys.path), *map(id, sys.meta_path)


def _modified(path: str) -> object:
    try:
        found = os.stat(path or os.curdir)
    except OSError:
        return None
    # With the number of the folder, since an empty path is the current folder, which may be another one.
    return found.st_dev, found.st_ino, found.st_mtime_ns


def _with_origins(points: Iterable[metadata.EntryPoint]) -> list[tuple[Origin, metadata.EntryPoint]]:
    """Return each entry point with its plugin's origin, ours first, then by name.

    So the result of a conflict does not depend on the order in which the distributions are found on disk.

    The metadata of a distribution are parsed once.  That takes 0.25 ms, and the properties ``name`` and
    ``version`` do it at each access.  For the 17 entry points of this distribution it was more than half of
    the time of loading all plugins.
    """
    # By identity: all entry points of one distribution share an object.
    distributions: dict[int, tuple[str, str]] = {}
    found = []
    for point in points:
        # An entry point that was not read from an installed distribution, as in tests.
        if point.dist is None:
            name, version = "an unknown distribution", ""
        elif id(point.dist) in distributions:
            name, version = distributions[id(point.dist)]
        else:
            information = point.dist.metadata
            name, version = distributions[id(point.dist)] = information["Name"], information["Version"]
        found.append((Origin(point.name, name, version), point))
    found.sort(key=lambda pair: (pair[0].distribution != OUR_DISTRIBUTION, str(pair[0])))
    return found


def _our_version() -> str:
    try:
        return metadata.version(OUR_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        # Run from a source tree that is not installed.
        return "(not installed)"


def _iterate(hook: str, answer: Any) -> list[Any]:
    if not isinstance(answer, Iterable):
        raise PluginError(f"its {hook} returned {type(answer).__name__}, not an iterable of kinds")
    return list(answer)


def _checked(hook: str, kind: Any, kind_class: type[msgspec.Struct]) -> Any:
    """Return the kind, or raise ``PluginError`` if the hook may not return it."""
    if not isinstance(kind, kind_class):
        raise PluginError(f"its {hook} returned a {type(kind).__name__}, not a {kind_class.__name__}")
    name = getattr(kind, "name", None)
    if not isinstance(name, str) or not name or any(letter.isspace() for letter in name):
        raise PluginError(f"its {hook} returned a {kind_class.__name__} with the name {name!r}")
    # A class that is named by a text is looked at when it is first asked for.
    if isinstance(kind, Kind) and not isinstance(kind.options, str):
        kind.options_class()
    return kind


def _listed(answer: Any) -> Any:
    """Run a generator to its end here, so that what it raises is still attributed to its plugin."""
    return list(answer) if isinstance(answer, Iterable) and not isinstance(answer, str) else answer


def _one_line(error: BaseException) -> str:
    # A refusal is one line in lists and logs. Texts of pluggy, and of errors of packages, have several.
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "; ".join(lines) or type(error).__name__
