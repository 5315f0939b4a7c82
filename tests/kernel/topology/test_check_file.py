"""What ``kernel check`` finds before anything runs: each sort once, with file and line."""

from __future__ import annotations

import socket
from importlib.metadata import version
from pathlib import Path

import pytest
import trustme

from kernel.plugins import PluginRegistry
from kernel.topology.check_file import Report, check_file


@pytest.fixture(scope="module")
def registry() -> PluginRegistry:
    return PluginRegistry.load()


def check(text: str, tmp_path: Path, registry: PluginRegistry, *, machine: bool = True) -> Report:
    """Check a text as the file ``f``."""
    (tmp_path / "topology").write_text(text)
    report = check_file(tmp_path / "topology", registry, machine=machine)
    for lines in (report.complaints, report.warnings):
        lines[:] = [line.replace(f"{tmp_path}/topology", "f").replace(str(tmp_path), "DIR") for line in lines]
    return report


APP = '[engines.app]\nkind = "native"\n'
JOURNAL = '[engines.kept]\nkind = "journal"\npath = "j"\n'
PAST = '[engines.old]\nkind = "journal-replay"\npath = "j"\n'
REPLAY = PAST + "follow = true\n"
LISTENER = '[engines.{}]\nkind = "stream"\nmode = "listen"\naddress = "{}"\n'
APART = '[threads.apart]\nkind = "process"\n'
BROKER = '[engines.b]\nkind = "amqp"\naddress = "127.0.0.1:0"\n'
WEB = '[engines.w]\nkind = "web"\naddress = "127.0.0.1:0"\nbroker = "b"\n'
REMOVE = "remove the route, or name an engine that"


def route(source: str, to: str, more: str = "") -> str:
    return f'[[routes]]\nfrom = "{source}"\nto = "{to}"\n{more}'


COMPLAINTS = {
    "definitions that are not there": (
        BROKER + 'definitions = "DIR/none.json"\n',
        [
            "f:4: [engines.b] definitions: DIR/none.json: No such file or directory; name a file that exists, or remove the key"
        ],
    ),
    "file where a folder has to be": (
        BROKER + 'data_dir = "DIR/topology/deep"\n',
        ["f:4: [engines.b] data_dir: f is no folder; name another one"],
    ),
    "certificate that is not there": (
        '[engines.b]\nkind = "amqp"\naddress = "127.0.0.1:0"\ntls.certificate = "DIR/none.pem"\n',
        ["f:4: [engines.b] tls.certificate: DIR/none.pem: No such file or directory"],
    ),
    "key that is not there": (
        BROKER + 'tls.certificate = "DIR/topology"\ntls.key = "DIR/none.pem"\n',
        ["f:5: [engines.b] tls.key: DIR/none.pem: No such file or directory"],
    ),
    "certificate of one listener of several": (
        '[engines.b]\nkind = "broker"\n[[engines.b.listeners]]\nprotocol = "amqp"\naddress = ":0"\n'
        '[[engines.b.listeners]]\nprotocol = "amqp"\naddress = "tls://:0"\n[engines.b.listeners.tls]\n'
        'certificate = "DIR/none.pem"\n',
        ["f:10: [engines.b.listeners.1] tls.certificate: DIR/none.pem: No such file or directory"],
    ),
    "listener of TLS without a certificate": (
        LISTENER.format("x", "backend+tls://:0"),
        ["f:1: [engines.x] tls: a listener of tls needs tls.certificate (and tls.key)"],
    ),
    "two engines on one port": (
        BROKER.replace(":0", ":5672") + LISTENER.format("x", "backend+tcp://127.0.0.1:5672"),
        [
            "f:7: [engines.x] address: [engines.b], line 3, listens at 'tcp 127.0.0.1:5672' too; "
            "choose another place for one of them"
        ],
    ),
    "a port of every interface": (
        LISTENER.format("x", "backend+tcp://:5672") + BROKER.replace(":0", ":5672"),
        [
            "f:7: [engines.b] address: [engines.x], line 4, listens at 'tcp 127.0.0.1:5672' too; "
            "choose another place for one of them"
        ],
    ),
    "the port that both have by default": (
        '[engines.a]\nkind = "amqp"\n[engines.b]\nkind = "amqp"\n',
        [
            "f:3: [engines.b] address: [engines.a], line 1, listens at 'tcp 127.0.0.1:5672' too; "
            "choose another place for one of them"
        ],
    ),
    "two listeners of one broker": (
        '[engines.b]\nkind = "broker"\n'
        + '[[engines.b.listeners]]\nprotocol = "amqp"\naddress = "127.0.0.1:5672"\n' * 2,
        [
            "f:8: [engines.b.listeners.1] address: [engines.b.listeners.0], line 5, listens at 'tcp 127.0.0.1:5672' "
            "too; choose another place for one of them"
        ],
    ),
    "two of one name inside the process": (
        LISTENER.format("x", "backend+inproc://hub") + LISTENER.format("y", "backend+inproc://hub"),
        [
            "f:8: [engines.y] address: [engines.x], line 4, listens at 'hub' too; "
            "choose another place for one of them"
        ],
    ),
    "binding to a queue that is not declared": (
        BROKER + 'bindings = [{ exchange = "amq.topic", queue = "none" }]\n',
        ["f:4: [engines.b] bindings: there is no queue 'none' in queues"],
    ),
    "binding from an exchange that is not declared": (
        BROKER + 'bindings = [{ exchange = "none", to_exchange = "amq.topic" }]\n',
        ["f:4: [engines.b] bindings: there is no exchange 'none' in exchanges"],
    ),
    "virtual host of the routes": (
        BROKER + 'vhost = "red"\n',
        ["f:4: [engines.b] vhost: 'red' is not in vhosts (/); add it there, or name one of them"],
    ),
    "virtual host of a user": (
        BROKER + '[engines.b.users.me]\npassword = "x"\nvhosts = ["/", "red"]\n',
        ["f:6: [engines.b] users.me.vhosts: 'red' is not in vhosts (/); add it there, or name one of them"],
    ),
    "virtual host of a client in the process": (
        BROKER + '[engines.c]\nkind = "broker-client"\nbroker = "b"\nvhost = "red"\n',
        ["f:4: engine 'c': its broker 'b' has no virtual host 'red'; its vhosts: / (PLUGIN 'broker')"],
    ),
    "broker of a client in the process": (
        BROKER + '[engines.c]\nkind = "broker-client"\nbroker = "a"\n',
        ["f:4: engine 'c': its broker 'a' is no engine of this file; engines: b (PLUGIN 'broker')"],
    ),
    "engine that decides on logins": (
        LISTENER.format("x", "backend+tcp://:0") + 'authenticator = "nobody"\n',
        [
            "f:1: engine 'x': its authenticator 'nobody' is no engine of this file, so every login would be refused "
            "(PLUGIN 'stream')"
        ],
    ),
    "engine that decides on logins, from another process": (
        APART + BROKER + LISTENER.format("x", "backend+tcp://:0") + 'authenticator = "b"\nthread = "apart"\n',
        [
            "f:6: engine 'x': its authenticator 'b' is outside of its process 'apart', and cannot be asked from there, "
            "so every login would be refused (PLUGIN 'stream')"
        ],
    ),
    "engine that decides on logins of sockets, from another process": (
        APART
        + BROKER
        + '[engines.x]\nkind = "zmq"\ntype = "PULL"\nbind = ["tcp://127.0.0.1:0"]\nmechanism = "PLAIN"\n'
        + 'authenticator = "b"\nthread = "apart"\n',
        [
            "f:6: engine 'x': its authenticator 'b' is outside of its process 'apart', and cannot be asked from there, "
            "so every login would be refused (PLUGIN 'zmq')"
        ],
    ),
    "broker of pages in another process": (
        APART
        + BROKER
        + '[engines.x]\nkind = "web"\naddress = "127.0.0.1:0"\nbroker = "b"\nthread = "apart"\n',
        [
            "f:6: engine 'x': its broker 'b' is outside of its process 'apart', and cannot be asked from there "
            "(PLUGIN 'web')"
        ],
    ),
    "broker of a client, in another process": (
        APART + BROKER + 'thread = "apart"\n[engines.c]\nkind = "broker-client"\nbroker = "b"\n',
        [
            "f:7: engine 'c': its broker 'b' is in process 'apart', and this client needs it in the process of the "
            "application (PLUGIN 'broker')"
        ],
    ),
    "route into a replay": (
        APP + REPLAY + route("app", "old"),
        [
            "f:9: this route leads to 'old', which is of kind 'journal-replay' and takes no messages; "
            f"{REMOVE} takes messages"
        ],
    ),
    "dead letters into a replay": (
        APP + JOURNAL + REPLAY + route("app", "kept", 'confirm = true\ndead_letters = "old"\n'),
        [
            "f:14: this route sends dead letters to 'old', which is of kind 'journal-replay' and takes no messages; "
            f"{REMOVE} takes messages"
        ],
    ),
    "route out of a sink": (
        APP + JOURNAL + route("kept", "app"),
        [
            "f:7: this route begins at 'kept', which is of kind 'journal' and sends nothing; "
            f"{REMOVE} sends messages"
        ],
    ),
    "route into the receiver of a group": (
        APP
        + '[engines.g]\nkind = "pgm"\nmode = "receive"\naddress = "backend+epgm://;239.192.1.1:5"\n'
        + route("app", "g"),
        [
            "f:9: this route leads to 'g', which is of kind 'pgm' with mode = \"receive\" and takes no messages; "
            f"{REMOVE} takes messages"
        ],
    ),
}


@pytest.mark.parametrize("name", COMPLAINTS)
def test_a_mistake_is_found_before_anything_runs(name: str, tmp_path: Path, registry: PluginRegistry) -> None:
    text, complaints = COMPLAINTS[name]
    report = check(text.replace("DIR", str(tmp_path)), tmp_path, registry)
    origins = {f"({origin})": f"(PLUGIN {origin.plugin!r})" for origin in registry.plugins.values()}
    found = report.complaints
    for said, short in origins.items():
        found = [line.replace(said, short) for line in found]
    assert found == complaints
    assert report.plan is None


def test_a_journal_to_replay_has_to_be_there_unless_it_is_written_here_or_later(
    tmp_path: Path, registry: PluginRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    past = APP + PAST + route("old", "app")
    assert check(past, tmp_path, registry).complaints == [
        "f:5: [engines.old] path: DIR/j: No such file or directory"
    ]
    (tmp_path / "j").mkdir()
    assert check(past, tmp_path, registry).complaints == [
        "f:5: [engines.old] path: DIR/j is not a journal: it has no .index file"
    ]
    for right in (APP + REPLAY + route("old", "app"), past + JOURNAL + route("app", "kept")):
        assert check(right, tmp_path, registry).complaints == []


def test_files_that_are_there_and_cannot_be_used_are_named(tmp_path: Path, registry: PluginRegistry) -> None:
    for name in ("one", "other"):
        trustme.CA().issue_cert("h").private_key_pem.write_to_path(str(tmp_path / f"{name}.key"))
    issued = trustme.CA().issue_cert("h").cert_chain_pems[0]
    issued.write_to_path(str(tmp_path / "one.pem"))
    text = BROKER + f'tls.certificate = "{tmp_path}/one.pem"\ntls.key = "{tmp_path}/other.key"\n'
    (complaint,) = check(text, tmp_path, registry).complaints
    assert complaint.startswith("f:4: [engines.b] tls.certificate: DIR/one.pem and tls.key DIR/other.key: ")
    text = (
        APP
        + f'[engines.x]\nkind = "direct"\naddress = "backend+tls://h:1"\ntls.authorities = "{tmp_path}/one.key"\n'
    )
    (complaint,) = check(text, tmp_path, registry).complaints
    assert complaint.startswith("f:6: [engines.x] tls.authorities: DIR/one.key: ")


EMPTY = (
    "has an empty word, so it matches only keys with two dots in a row or a dot at an end; "
    "'*' stands for one word"
)
INSIDE = (
    "inside a word, where it stands for itself; as a wildcard it has to be a whole word between dots, "
    "and 'prefix:' matches beginnings"
)
OUT = '[engines.out]\nkind = "trio"\n'
UNOPENED = (
    "f:3: warning: [engines.out] is opened by application code, which `kernel run` does not have; its messages "
    "wait. Run the file from a Python program (Kernel.from_file), or name another engine in the route"
)
NO_TAG = (
    "f:4: warning: engine 'w': no user of 'b' has the tag monitoring or administrator, so everybody is refused "
    "/metrics; add tags = [\"monitoring\"] to one of [engines.b.users] (plugin 'web' of messaging-kernel "
    f"{version('messaging-kernel')})"
)
WARNINGS = {
    "metrics without the users that a file names": (BROKER + WEB, [NO_TAG]),
    "metrics for nobody": (
        BROKER + WEB + '[engines.b.users.me]\npassword = "p"\ntags = ["management"]\n',
        [NO_TAG],
    ),
    "metrics for somebody": (
        BROKER + WEB + '[engines.b.users.me]\npassword = "p"\ntags = ["administrator"]\n',
        [],
    ),
    "metrics for users that are imported": (BROKER + 'definitions = "DIR/none.json"\n' + WEB, []),
    "dead letters for an application": (
        "\n\n" + OUT + JOURNAL + BROKER + route("b", "kept", 'confirm = true\ndead_letters = "out"\n'),
        [UNOPENED],
    ),
    "application that only sends": (APP + JOURNAL + route("app", "kept"), []),
    "thread that only a program has": (
        '[threads.g]\nkind = "guest"\n' + BROKER,
        [
            "f:1: warning: [threads.g] is of kind 'guest', which needs a program with `async with kernel`; "
            "`kernel run` refuses it"
        ],
    ),
    "word that is empty": (
        APP + OUT + route("app", "out", 'match = "a..b"\n'),
        [UNOPENED, f"f:8: warning: match = 'a..b' {EMPTY}"],
    ),
    "wildcards inside words": (
        APP + OUT + route("app", "out", 'match = ["a.*", "prefix:a..", "wea*", "#x"]\n'),
        [
            UNOPENED,
            f"f:8: warning: match = 'wea*' has '*' {INSIDE}",
            f"f:8: warning: match = '#x' has '#' {INSIDE}",
        ],
    ),
    "name that no route has": (
        APP + OUT + route("out", "out"),
        [
            "f:1: warning: [engines.app] no route begins or ends here, so no message gets in or out; add a [[routes]] table",
            UNOPENED,
        ],
    ),
    "sink without a route": (
        BROKER + JOURNAL,
        ["f:4: warning: [engines.kept] no route leads here, so it gets no message; add a [[routes]] table"],
    ),
    "source without a route": (
        BROKER + REPLAY,
        [
            "f:4: warning: [engines.old] no route begins here, so its messages are dropped; add a [[routes]] table"
        ],
    ),
    "what is of use without routes": (BROKER + '[engines.c]\nkind = "broker-client"\nbroker = "b"\n', []),
}


@pytest.mark.parametrize("name", WARNINGS)
def test_what_is_probably_not_meant_is_a_warning(name: str, tmp_path: Path, registry: PluginRegistry) -> None:
    text, warnings = WARNINGS[name]
    (tmp_path / "none.json").write_text("{}")
    report = check(text.replace("DIR", str(tmp_path)), tmp_path, registry)
    assert report.complaints == []
    assert report.warnings == warnings


@pytest.mark.parametrize("transport", ["tcp", "unix", "sctp"])
def test_a_place_that_is_taken_is_a_warning(transport: str, tmp_path: Path, registry: PluginRegistry) -> None:
    """It may be taken by the system that runs this file already."""
    path = str(tmp_path / "taken")
    family = socket.AF_UNIX if transport == "unix" else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM if transport == "sctp" else socket.SOCK_STREAM) as taken:
        taken.bind(path if transport == "unix" else ("127.0.0.1", 0))
        if transport != "sctp":
            taken.listen()
        port = 0 if transport == "unix" else taken.getsockname()[1]
        place, shown = {
            "tcp": (f"127.0.0.1:{port}", f"tcp 127.0.0.1:{port}"),
            "unix": (path, "DIR/taken"),
            "sctp": (f"127.0.0.1:1/{port}", f"udp 127.0.0.1:{port}"),
        }[transport]
        listener = LISTENER.format("x", f"backend+{transport}://{place}")
        text = APP + listener + route("app", "x")
        report = check(text, tmp_path, registry)
        assert report.complaints == []
        assert report.warnings == [
            f"f:6: warning: [engines.x] address: cannot listen at '{shown}' now: Address already in use"
        ]
        assert check(text, tmp_path, registry, machine=False).warnings == []
    assert check(text, tmp_path, registry).warnings == []


def test_certificates_of_another_machine_are_not_looked_for(tmp_path: Path, registry: PluginRegistry) -> None:
    text = BROKER + 'tls.certificate = "/no/such.pem"\n'
    assert check(text, tmp_path, registry).complaints != []
    assert check(text, tmp_path, registry, machine=False).complaints == []


NO_JSON = "these are no definitions: JSON is malformed: expected"
DEFINITIONS = {
    '{"a": [{}\n\n {': f"line 3, column 2: {NO_JSON} ',' or ']' (byte 12)",
    "[]": "these are no definitions: Expected `object`, got `array`",
    '{"queues": [{"name": "q", "vhost": "other"}]}': "$.queues[0]: NOT_ALLOWED - vhost other not found",
}


@pytest.mark.parametrize("text", DEFINITIONS)
def test_definitions_that_an_import_would_refuse_are_named_with_their_place(
    text: str, tmp_path: Path, registry: PluginRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "d.json"
    file.write_text(text)
    topology = BROKER + f'definitions = "{file}"\n'
    said = f"[engines.b] definitions: 'DIR/d.json': {DEFINITIONS[text]}"
    assert check(topology, tmp_path, registry).complaints == [f"f:4: {said}"]
    assert check(topology, tmp_path, registry, machine=False).complaints == []
    # The name of the file may be a secret; what is in the file is not from the environment.
    monkeypatch.setenv("FILE", str(file))
    hidden = said.replace("'DIR/d.json'", "(from the environment)")
    secret = check(BROKER + 'definitions = "${FILE}"\n', tmp_path, registry)
    assert secret.complaints == [f"f:4: {hidden}"]


def test_a_variable_that_is_not_set_is_one_complaint(
    tmp_path: Path, registry: PluginRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CERTIFICATE", raising=False)
    text = BROKER + 'tls.certificate = "${CERTIFICATE}"\n'
    assert check(text, tmp_path, registry).complaints == [
        "f:4: the environment has no CERTIFICATE; set it, or write ${CERTIFICATE:-default}"
    ]


def test_the_name_of_a_file_from_the_environment_is_not_shown(
    tmp_path: Path, registry: PluginRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CERTIFICATE", "/secret/name.pem")
    text = BROKER + 'tls.certificate = "${CERTIFICATE}"\n'
    assert check(text, tmp_path, registry).complaints == [
        "f:4: [engines.b] tls.certificate: the file cannot be used"
    ]
