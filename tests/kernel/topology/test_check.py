"""Every sort of mistake in a topology file, and the exact complaint."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel.contracts.errors import PlanError
from kernel.plugins import PluginRegistry
from kernel.topology.check import load_plan, make_plan, plan_of_text
from kernel.topology.file import read_text
from kernel.topology.plan import Plan

LINK = '[engines.link]\nkind = "stream"\naddress = "backend+tcp://127.0.0.1:1"\n'
APP = '[engines.app]\nkind = "native"\n'
BOTH = LINK + APP  # five lines
ROUTE = '[[routes]]\nfrom = "app"\nto = "link"\n'


@pytest.fixture(scope="module")
def registry() -> PluginRegistry:
    return PluginRegistry.load()


def complaints(text: str, registry: PluginRegistry, **environ: str) -> list[str]:
    try:
        make_plan(read_text(text, "f", environ), registry)
    except PlanError as error:
        return error.complaints
    return []


AMQP = '[engines.b]\nkind = "amqp"\n'
BROKER_ALONE = '[engines.b]\nkind = "broker"\n'
BROKER = '[engines.broker]\nkind = "broker"\n[[engines.broker.listeners]]\n'
MISTAKES = {
    "listener without a protocol": (
        BROKER + 'address = "127.0.0.1:0"\n',
        "f:3: [engines.broker.listeners.0] lacks 'protocol', a front end; known: amqp, mqtt, stomp",
    ),
    "listener of an unknown protocol": (
        BROKER + 'protocol = "amq"\naddress = "127.0.0.1:0"\n',
        "f:4: [engines.broker.listeners.0] names the unknown front end 'amq'; did you mean 'amqp'?",
    ),
    "listener with a misspelt option": (
        BROKER + 'protocol = "amqp"\naddress = "127.0.0.1:0"\nheartbet = 1\n',
        "f:6: [engines.broker.listeners.0] has no key 'heartbet'; did you mean 'heartbeat'?",
    ),
    "heartbeat that no frame can hold": (
        AMQP + "heartbeat = -1\n",
        "f:3: [engines.b] heartbeat = -1: must be a whole number >= 0",
    ),
    "more channels than AMQP can number": (
        AMQP + "channel_max = 65536\n",
        "f:3: [engines.b] channel_max = 65536: must be a whole number <= 65535",
    ),
    "frame that every client refuses": (
        AMQP + "frame_max = 10\n",
        "f:3: [engines.b] frame_max = 10: must be a whole number >= 4096",
    ),
    "no time to log in": (
        AMQP + "handshake_seconds = 0\n",
        "f:3: [engines.b] handshake_seconds = 0: must be a number > 0.0",
    ),
    "listener that nobody may use": (
        BROKER + 'protocol = "mqtt"\naddress = "127.0.0.1:0"\nmax_connections = 0\n',
        "f:6: [engines.broker.listeners.0] max_connections = 0: must be a whole number >= 1",
    ),
    "buffer that the system cannot be told": (
        LINK + "send_buffer = 2147483648\n",
        "f:4: [engines.link] send_buffer = 2147483648: must be a whole number <= 2147483647",
    ),
    "processor with a negative number": (
        '[threads.t]\nkind = "poll"\ncpus = [0, -1]\n',
        "f:3: [threads.t] cpus: must be a whole number >= 0 at [1]",
    ),
    "pattern of a user": (
        AMQP + '[engines.b.users.me]\npassword = "p"\n[engines.b.users.orders]\nconfigure = "^(orders"\n',
        "f:6: [engines.b] users.orders.configure = '^(orders' is no regular expression: "
        "missing ), unterminated subpattern at position 1",
    ),
    "password of a user in two ways": (
        AMQP + '[engines.b.users."me.too"]\npassword = "p"\npassword_hash = "h"\n',
        "f:3: [engines.b] users.me.too: a user has a password or a password_hash, not both",
    ),
    "pattern of a policy": (
        AMQP + '[engines.b.policies.long]\ndefinition.max-length = 3\npattern = "("\n',
        "f:5: [engines.b] policies.long.pattern = '(' is no regular expression: "
        "missing ), unterminated subpattern at position 0",
    ),
    "virtual host of a user with dots": (
        AMQP + '[engines.b.users."me.too"]\npassword = "p"\nvhosts = ["shop"]\n',
        "f:5: [engines.b] users.me.too.vhosts: 'shop' is not in vhosts (/); add it there, or name one of them",
    ),
    "user that is a text": (
        AMQP + 'users.guest = "guest"\n',
        'f:3: [engines.b] users.guest = "guest": must be a table; write guest = { password = "guest" }',
    ),
    "exchange of an unknown type": (
        AMQP + 'exchanges = [\n{ name = "a" },\n{ name = "orders", type = "topik" },\n]\n',
        "f:5: [engines.b] exchanges[1] 'orders': unknown exchange type 'topik'; did you mean 'topic'?",
    ),
    "exchange with a name that is not free": (
        BROKER_ALONE + '[[engines.b.exchanges]]\nname = "amq.mine"\n',
        "f:3: [engines.b] exchanges[0] 'amq.mine': ACCESS_REFUSED - exchange name 'amq.mine' contains reserved prefix 'amq.*'",
    ),
    "argument of a queue in words": (
        AMQP + '[[engines.b.queues]]\nname = "jobs"\narguments.x-max-length = "many"\n',
        "f:5: [engines.b] queues[0] 'jobs': x-max-length = \"many\": must be a whole number, 0 or more",
    ),
    "argument of a queue below nothing": (
        AMQP + '[[engines.b.queues]]\nname = "jobs"\n[engines.b.queues.arguments]\nx-message-ttl = -3\n',
        "f:6: [engines.b] queues[0] 'jobs': x-message-ttl = -3: must be a whole number of milliseconds, 0 to 315360000000",
    ),
    "dead letters to nobody": (
        BOTH + ROUTE + 'confirm = true\ndead_letters = "lnk"\n',
        "f:10: this route sends dead letters to 'lnk', which is no engine of this file; did you mean 'link'?",
    ),
    "dead letters to an end": (
        BOTH + ROUTE + 'confirm = true\ndead_letters = "link"\n',
        "f:10: 'link' is itself an end of this route; name another engine",
    ),
    "dead letters of what nobody keeps": (
        BOTH + '[engines.morgue]\nkind = "native"\n' + ROUTE + 'dead_letters = "morgue"\n',
        "f:11: dead_letters needs confirm = true: only a message that has to be confirmed can be refused",
    ),
    "not TOML": ("[engines\n", "f:1: not TOML: Expected ']' at the end of a table declaration"),
    "table twice": (
        LINK + APP + LINK,
        "f:6: [engines.link] is there twice; join the two tables, or rename one",
    ),
    "text without quotes": (
        "[engines.x]\nkind = amqp\n",
        'f:2: not TOML: Invalid value; text needs quotes, as in name = "text"',
    ),
    "address without quotes": (
        '[engines.x]\nkind = "amqp"\naddress = 127.0.0.1:5672\n',
        "f:3: not TOML: Expected newline or end of document after a statement; text needs quotes, "
        'as in name = "text"',
    ),
    "key twice": ("[a]\nx = 1\nx = 2\n", "f:3: not TOML: Cannot overwrite a value"),
    "empty": ("", "f:1: there is no [engines.NAME] table, so nothing would run; add one"),
    "unknown section": (BOTH + "[engine.x]\n", "f:6: there is no section 'engine'; did you mean 'engines'?"),
    "section of another form": (
        "engines = 3\n",
        "f:1: 'engines' must consist of tables; write [engines.NAME]",
    ),
    "engine that is no table": (
        BOTH + "[engines]\nx = 1\n",
        "f:7: engines.x must be a table; write [engines.x]",
    ),
    "no kind": (
        BOTH + "[engines.x]\n",
        "f:6: [engines.x] lacks 'kind'; installed: {KINDS}",
    ),
    "kind that is no text": (BOTH + "[engines.x]\nkind = 3\n", "f:7: [engines.x] kind: must be text"),
    "misspelt kind": (
        BOTH + '[engines.x]\nkind = "straem"\n',
        "f:7: unknown engine kind 'straem'; did you mean 'stream'?",
    ),
    "misspelt option": (
        BOTH.replace("address", "adress"),
        "f:3: [engines.link] has no key 'adress'; did you mean 'address'?",
    ),
    "misspelt key of any engine": (
        LINK + 'thred = "io"\n',
        "f:4: [engines.link] has no key 'thred'; did you mean 'thread'?",
    ),
    "missing option": (
        '[engines.link]\nkind = "stream"\n',
        "f:1: [engines.link] lacks 'address', which must be text",
    ),
    "option of the wrong type": (
        LINK + 'max_connections = "many"\n',
        'f:4: [engines.link] max_connections = "many": must be a whole number',
    ),
    "number in quotes": (
        LINK + 'max_connections = "5"\n',
        'f:4: [engines.link] max_connections = "5": must be a whole number',
    ),
    "option out of bounds": (
        LINK + "max_connections = 0\n",
        "f:4: [engines.link] max_connections = 0: must be a whole number >= 1",
    ),
    "choice that is none": (
        LINK + 'mode = "listne"\n',
        'f:4: [engines.link] mode = "listne": must be "dial" or "listen"; did you mean \'listen\'?',
    ),
    "address without a port": (
        BOTH.replace("127.0.0.1:1", "127.0.0.1"),
        "f:3: [engines.link] address: 'backend+tcp://127.0.0.1': '127.0.0.1' is no host:port",
    ),
    "address with a port that is none": (
        BOTH.replace(":1", ":99999"),
        "f:3: [engines.link] address: 'backend+tcp://127.0.0.1:99999': the port 99999 is not between 0 and 65535",
    ),
    "address of nowhere": (
        BOTH.replace("tcp://127.0.0.1:1", "unix://"),
        "f:3: [engines.link] address: 'backend+unix://' is no address: it takes protocol+transport://place, "
        "as in backend+tcp://127.0.0.1:5555",
    ),
    "mistake in an inner table": (
        LINK + 'tls = { certifcate = "x" }\n',
        "f:4: [engines.link] tls has no key 'certifcate'; did you mean 'certificate'?",
    ),
    "mistake in a table below": (
        LINK + "[engines.link.reconnect]\nmst = 1\n",
        "f:5: [engines.link] reconnect has no key 'mst'; did you mean 'most'?",
    ),
    "mistake in a list of tables": (
        '[engines.b]\nkind = "amqp"\nqueues = [\n  { name = "a" },\n  { nam = "b" },\n]\n',
        "f:5: [engines.b] queues[1] has no key 'nam'; did you mean 'name'?",
    ),
    "mistake in a table of tables": (
        '[engines.b]\nkind = "amqp"\n[engines.b.users.me]\npasword = "x"\n',
        "f:4: [engines.b] users.me has no key 'pasword'; did you mean 'password'?",
    ),
    "unknown protocol": (
        LINK.replace("backend+", "backnd+"),
        "f:3: unknown protocol 'backnd'; did you mean 'backend'?",
    ),
    "mistake in the protocol's options": (
        LINK + "[engines.link.protocol]\nheartbaet = 3\n",
        "f:5: [engines.link.protocol] has no key 'heartbaet'; did you mean 'heartbeat'?",
    ),
    "unknown transport": (
        LINK.replace("tcp", "tpc"),
        "f:3: [engines.link] address: 'backend+tpc://127.0.0.1:1': there is no transport 'tpc' here, "
        "only tcp, tls, unix, ws, wss, inproc",
    ),
    "unknown thread": (
        '[threads.io]\n[threads.net]\n[engines.link]\nkind = "stream"\naddress = "backend+tcp://:1"\nthread = "ios"\n',
        "f:6: [engines.link] names thread 'ios', which does not exist; did you mean 'io'?",
    ),
    "thread of an api": (
        '[threads.io]\n[engines.app]\nkind = "native"\nthread = "io"\n',
        "f:4: [engines.app] is opened by application code and runs in its caller's thread; remove 'thread'",
    ),
    "unknown thread kind": (
        '[threads.io]\nkind = "pool"\n' + BOTH,
        "f:2: unknown thread kind 'pool'; did you mean 'poll'?",
    ),
    "one route table": (
        BOTH + '[routes]\nfrom = "app"\nto = "link"\n',
        "f:6: [routes] is a single table, and a file has any number of routes; write [[routes]]",
    ),
    "routes of another form": (
        "routes = [1]\n" + BOTH,
        "f:1: 'routes' must be a list of tables; write [[routes]]",
    ),
    "route from nowhere": (
        BOTH + ROUTE.replace('"app"', '"apq"'),
        "f:7: this route begins at 'apq', which is no engine of this file; did you mean 'app'?",
    ),
    "route to nowhere": (
        BOTH + ROUTE.replace('"link"', '["link", "lnk"]'),
        "f:8: this route leads to 'lnk', which is no engine of this file; did you mean 'link'?",
    ),
    "route to nobody": (
        BOTH + ROUTE.replace('"link"', "[]"),
        "f:8: 'to' is empty, so this route leads nowhere; name an engine",
    ),
    "route to somebody twice": (
        BOTH + ROUTE.replace('"link"', '["link", "link"]'),
        "f:8: this route leads to 'link' twice; remove one of them",
    ),
    "route without an end": (
        BOTH + '[[routes]]\nfrom = "app"\n',
        "f:6: [[routes]] lacks 'to', which must be text or a list",
    ),
    "misspelt key of a route": (
        BOTH + ROUTE + 'mach = "a"\n',
        "f:9: [[routes]] has no key 'mach'; did you mean 'match'?",
    ),
    "match of the wrong type": (
        BOTH + ROUTE + "match = 3\n",
        "f:9: [[routes]] match = 3: must be text or a list",
    ),
    "unknown router": (
        BOTH + ROUTE + 'router = "fanout"\n',
        "f:9: unknown router 'fanout'; did you mean 'fan-out'?",
    ),
    "router option": (
        BOTH + ROUTE + "[routes.options]\nx = 1\n",
        "f:10: [routes.options] of router 'fan-out' has no key 'x'; there are none",
    ),
    "when_full": (
        BOTH + ROUTE + 'when_full = "drop"\n',
        'f:9: [[routes]] when_full = "drop": must be "block" or "drop-newest" or "drop-oldest"',
    ),
    "mark of nothing": (BOTH + ROUTE + "high = 0\n", "f:9: [[routes]] high = 0: must be at least 1"),
    "negative stall timeout": (
        BOTH + ROUTE + "stall_timeout = -1.0\n",
        "f:9: [[routes]] stall_timeout = -1.0: must be 0 or more seconds",
    ),
    "contradiction": (
        BOTH + ROUTE + 'confirm = true\nwhen_full = "drop-oldest"\n',
        "f:10: when_full = 'drop-oldest' drops messages, and confirm = true promises to lose none; remove one of them",
    ),
    "route twice": (
        BOTH + ROUTE + ROUTE,
        "f:9: this route equals that of line 6, so each message would come twice; remove one",
    ),
    "address of a broker that is none": (
        '[engines.x]\nkind = "amqp"\naddress = "127.0.0.1:nope"\n',
        "f:3: [engines.x] address: 'amqp+tcp://127.0.0.1:nope': '127.0.0.1:nope' is no host:port",
    ),
    "address of a client that is none": (
        '[engines.x]\nkind = "amqp-client"\naddresses = ["127.0.0.1:1", "amqp+tcp://there"]\n',
        "f:3: [engines.x] addresses: 'amqp+tcp://there': 'there' is no host:port",
    ),
    "address of a link that is none": (
        '[engines.x]\nkind = "federation"\nbroker = "b"\nexchanges = ["e"]\naddresses = ["backend+tcp://there:1"]\n',
        "f:5: [engines.x] addresses: 'backend+tcp://there:1': an address here begins with one of amqp+tcp, amqp+tls, amqp+unix, amqp+ws, amqp+wss",
    ),
    "variable that is not set": (
        LINK.replace("127.0.0.1", "${HOST}"),
        "f:3: the environment has no HOST; set it, or write ${HOST:-default}",
    ),
    "not a variable": (
        LINK.replace("127.0.0.1", "${HO ST}"),
        "f:3: '${HO ST}' is not a variable; write ${NAME}, ${NAME:-default}, or $$ for a dollar",
    ),
    "variable of the wrong type": (
        LINK + 'max_connections = "${MOST:-all}"\n',
        "f:4: [engines.link] max_connections (from the environment): must be a whole number",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_with_its_line_and_a_hint(name: str, registry: PluginRegistry) -> None:
    text, complaint = MISTAKES[name]
    kinds = ", ".join(sorted({*registry.engines, *registry.apis}))
    assert complaints(text, registry) == [complaint.replace("{KINDS}", kinds)]


def test_all_mistakes_come_at_once_in_the_order_of_the_file(registry: PluginRegistry) -> None:
    text = LINK.replace("address", "adress") + 'mode = "x"\n' + ROUTE.replace('"app"', '"nobody"')
    lines = [int(complaint.split(":")[1]) for complaint in complaints(text, registry)]
    assert lines == [3, 4, 6]


def test_a_good_file_becomes_a_plan(registry: PluginRegistry) -> None:
    text = (
        "[threads.io]\n"
        + LINK
        + 'thread = "io"\n'
        + APP
        + ROUTE
        + 'match = ["a.#", "b"]\nhigh = 5\nexchange = "e"\n'
    )
    plan = plan_of_text(text, registry)
    assert [thread.name for thread in plan.threads] == ["io"]
    link, app = plan.engines
    assert (link.name, link.kind, link.thread, link.line) == ("link", "stream", "io", 2)
    assert link.options == {"address": "backend+tcp://127.0.0.1:1"}
    assert (app.kind, app.thread, app.options) == ("native", None, {})
    (route,) = plan.routes
    assert (route.source, route.targets, route.match, route.exchange) == ("app", ("link",), ("a.#", "b"), "e")
    assert (route.marks.high, route.marks.when_full, route.confirm, route.line) == (5, "block", False, 8)


def test_the_thread_that_is_made_by_default_may_be_named(registry: PluginRegistry) -> None:
    assert plan_of_text(LINK + 'thread = "poll-1"\n', registry).engines[0].thread == "poll-1"


def test_a_whole_variable_may_stand_for_a_number_or_a_truth_value(registry: PluginRegistry) -> None:
    text = LINK + 'max_connections = "${MOST}"\nstamp_reply_to = "${STAMP:-true}"\n'
    plan = make_plan(read_text(text, "f", {"MOST": "7"}), registry)
    assert plan.engines[0].options["max_connections"] == 7
    assert plan.engines[0].options["stamp_reply_to"] is True


def test_a_secret_is_not_printed(registry: PluginRegistry) -> None:
    text = LINK + 'mode = "${SECRET}"\n'
    (complaint,) = complaints(text, registry, SECRET="hunter2")
    assert "hunter2" not in complaint


@pytest.mark.parametrize(
    "text",
    [
        LINK + 'mode = "x${SECRET}"\n',
        LINK + 'max_connections = "1${SECRET}"\n',
        LINK.replace("backend+tcp://127.0.0.1:1", "tcp//user:${SECRET}@host"),
        LINK.replace("backend+tcp", "${SECRET}+tcp"),
        LINK.replace('"stream"', '"${SECRET}"'),
        LINK + 'thread = "${SECRET}"\n',
        BROKER + 'protocol = "${SECRET}"\naddress = "127.0.0.1:0"\n',
        '[engines.broker]\nkind = "amqp"\nusers = { u = { password = "p", read = "(${SECRET}" } }\n',
        LINK + '[[routes]]\nfrom = "link"\nto = "${SECRET}"\n',
        LINK + '[[routes]]\nfrom = "link"\nto = ["${SECRET}"]\n',
        LINK + '[[routes]]\nfrom = "link"\nto = "link"\nrouter = "${SECRET}"\n',
    ],
)
def test_nor_is_one_that_is_a_part_of_a_text_or_a_name(text: str, registry: PluginRegistry) -> None:
    found = complaints(text, registry, SECRET="hunter2")
    assert found
    assert not [complaint for complaint in found if "hunter2" in complaint]


def test_a_list_of_destinations_is_checked_also_where_one_is_from_the_environment(
    registry: PluginRegistry,
) -> None:
    text = BOTH + '[[routes]]\nfrom = "app"\nto = ["link", "${WHERE}", "lnik"]\n'
    assert complaints(text, registry, WHERE="link") == [
        "f:8: this route leads to (from the environment) twice; remove one of them",
        "f:8: this route leads to 'lnik', which is no engine of this file; did you mean 'link'?",
    ]


def test_a_file_that_is_not_there_or_not_text_is_a_complaint(
    tmp_path: Path, registry: PluginRegistry
) -> None:
    missing = tmp_path / "none.toml"
    with pytest.raises(PlanError, match="none.toml: No such file"):
        load_plan(missing, registry)
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"a = '\xff'")
    with pytest.raises(PlanError, match="not UTF-8, at byte 5"):
        load_plan(binary, registry)


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path, registry: PluginRegistry) -> None:
    path = tmp_path / "marked.toml"
    path.write_bytes(b'\xef\xbb\xbf[engines.app]\r\nkind = "native"\r\n')
    assert [engine.name for engine in load_plan(path, registry).engines] == ["app"]


def test_plugins_may_complain_about_a_plan_that_is_otherwise_good(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = PluginRegistry.load()

    def check_plan(plan: Plan) -> list[str]:
        return ["engine 'app': one more is too many", f"{len(plan.engines)} engines are too many"]

    monkeypatch.setattr(registry, "check_plan", check_plan)
    assert complaints(BOTH, registry) == [
        "f: 2 engines are too many",
        "f:4: engine 'app': one more is too many",
    ]
    assert complaints(BOTH + ROUTE.replace("app", "x"), registry)[0].startswith("f:7:")  # not asked


def test_an_address_from_the_environment_is_not_shown(registry: PluginRegistry) -> None:
    text = BOTH.replace("backend+tcp://127.0.0.1:1", "${WHERE}")
    (complaint,) = complaints(text, registry, WHERE="backend+tcp://secret")
    assert complaint == "f:3: [engines.link] address: the value from the environment is not valid"
