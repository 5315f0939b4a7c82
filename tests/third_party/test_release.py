"""What is released: a source distribution, the wheel made from it, and what the wheel does with and without each extra."""

from __future__ import annotations

import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from tests.captures import pcap
from tests.peers import optional
from tests.ports import free_port
from tests.third_party.environments import FOLDERS, OURS, ROOT, Environment, build_release, link_distributions

pika = optional("pika")

FOR_DEVELOPERS = {"bench", "demo", "dev", "docs", "interop"}

pytestmark = [
    pytest.mark.slow,  # processes of their own
    pytest.mark.xdist_group("release"),
]

BROKER = """
[engines.broker]
kind = "amqp"
address = "127.0.0.1:PORT"
"""

HELP = """
import contextlib, io, click
from kernel.cli import main

def look(command, names):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        status = main.run([*names, "--help"])
    if status != 0 or "Usage: kernel" not in printed.getvalue():
        print("no help:", *names)
    for name in command.list_commands(context) if isinstance(command, click.Group) else ():
        look(command.get_command(context, name), [*names, name])
    print(*names)

context = click.Context(main.cli)
look(main.cli, [])
"""

JOURNAL = """
import sys
from kernel import EnginePlan, Kernel, Plan, RoutePlan

plan = Plan(
    engines=(
        EnginePlan(name="app", kind="native"),
        EnginePlan(name="log", kind="journal", options={"path": sys.argv[1]}),
    ),
    routes=(RoutePlan(source="app", targets=("log",), confirm=True),),
)
with Kernel(plan) as kernel, kernel.open("app") as app:
    app.send_many([b"one", b"two", b"three"])
    app.wait_confirmed(timeout=60)
"""

SCTP = """
from kernel import EnginePlan, Kernel, Plan, RoutePlan
from plugins.protocols.sctp import checksum

def system(**options):
    engines = (EnginePlan(name="app", kind="native"), EnginePlan(name="net", kind="sctp", options=options))
    return Plan(engines=engines, routes=(RoutePlan(source="app", targets=("net",)), RoutePlan(source="net", targets=("app",))))

with Kernel(system(address="backend+sctp://127.0.0.1:0", mode="listen")) as server, server.open("app") as there:
    server.wait_running()
    with Kernel(system(address=f"backend+sctp://{server.address_of('net')}")) as client, client.open("app") as here:
        here.send(b"hello")
        print(bytes(there.receive(timeout=60)).decode())
print("by the library" if checksum.extended is not checksum.extended_in_python else "in Python")
"""

SPARK = """
import sys
from plugins.apis.spark import session

spark = session(master="local[1]")
print(spark.read.format("kernel").load(sys.argv[1]).count(), "rows")
spark.stop()
"""


WEB = """
from kernel import EnginePlan, Kernel, Plan, RoutePlan

def system(**options):
    engines = (EnginePlan(name="app", kind="native"), EnginePlan(name="net", kind="stream", options=options))
    return Plan(engines=engines, routes=(RoutePlan(source="app", targets=("net",)), RoutePlan(source="net", targets=("app",))))

with Kernel(system(address="backend+ws://127.0.0.1:0", mode="listen")) as server, server.open("app") as there:
    server.wait_running()
    with Kernel(system(address=f"backend+ws://{server.address_of('net')}")) as client, client.open("app") as here:
        here.send(b"hello")
        print(bytes(there.receive(timeout=60)).decode())
"""

TRACES = """
import time
from kernel import EnginePlan, Envelope, Kernel, Message, Plan, RoutePlan

app = EnginePlan(name="app", kind="native")
# Nobody listens there: what is exported is lost.
traces = EnginePlan(name="traces", kind="traces", options={"endpoint": "http://127.0.0.1:1/v1/traces"})
route = RoutePlan(source="app", targets=("traces",), router="tap", confirm=True)
context = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
with Kernel(Plan(engines=(app, traces), routes=(route,))) as kernel, kernel.open("app") as app:
    app.send_message(Message(b"x", Envelope(properties={"headers": context})))
    app.wait_confirmed(timeout=60)
    counters = {engine.name: engine.counters for engine in kernel.statistics().engines}
    print(counters["traces"]["spans"], "span")
"""

CURVE = """
from kernel.sockets import Context

server_key = open("server.key").read().split('public-key = "')[1].split('"')[0]
with Context() as context:
    pull = context.socket(
        "PULL",
        engine={"mechanism": "CURVE", "curve_certificate": "server.key_secret", "curve_clients": {"all": "*"}},
    )
    push = context.socket("PUSH", engine={"mechanism": "CURVE", "curve_server_key": server_key})
    push.connect(pull.bind("tcp://127.0.0.1:0"))
    push.send(b"hello")
    print(pull.recv(timeout=60).decode())
"""


class Release(msgspec.Struct):
    """What was built, and an environment that has it with what it needs without extras."""

    source: Path
    wheel: Path
    environment: Environment
    folder: Path

    def requirements(self) -> list[str]:
        """Return what the wheel asks for, with and without extras."""
        return self.environment.requirements(OURS)

    def extras(self) -> set[str]:
        """Return the names of the extras."""
        return self.environment.extras(OURS)

    def with_extra(self, extra: str) -> Path:
        """Return a folder with what an extra asks for."""
        folder = self.folder / f"extra-{extra}"
        if not folder.exists():
            folder.mkdir()
            link_distributions(self.requirements(), extra, self.environment, folder)
        return folder


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    folder = tmp_path_factory.mktemp("release")
    source, wheel = build_release(folder)
    environment = Environment(folder / "environment")
    environment.install(wheel)
    made = Release(source, wheel, environment, folder)
    link_distributions(made.requirements(), "", environment)
    return made


def test_the_wheel_has_every_file_of_both_packages(release: Release) -> None:
    """Markers for type checkers, templates and style sheets among them; one package has another place there."""
    moved = "plugins/apis/spark/found_by_spark/"
    files = {
        str(path.relative_to(ROOT)).removeprefix(moved)
        for name in FOLDERS
        for path in (ROOT / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {"kernel/py.typed", "plugins/py.typed"} <= files
    with zipfile.ZipFile(release.wheel) as wheel:
        packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert packed == files


def test_the_source_distribution_has_no_tests_of_ours_and_no_leftovers(release: Release) -> None:
    with tarfile.open(release.source) as source:
        names = {name.partition("/")[2].partition("/")[0] for name in source.getnames()}
    assert names - {""} == {
        *FOLDERS, "LICENSE", "PKG-INFO", "README.md", "messaging_kernel.egg-info", "pyproject.toml", "setup.cfg",
    }  # fmt: skip


def test_the_version_is_that_of_the_newest_section_of_the_changelog(release: Release) -> None:
    version = release.environment.command("kernel", "--version", cwd=release.folder).split()[-1]
    sections = [line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## ")]
    assert sections[0].split()[1] == version


@contextmanager
def _running(release: Release, text: str) -> Iterator[None]:
    topology = release.folder / "system.toml"
    topology.write_text(text)
    process = subprocess.Popen(
        [str(release.environment.scripts / "kernel"), "run", "--no-control", str(topology)],
        cwd=release.folder,
        env=release.environment.variables(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    said = []
    try:
        while not said or " ready " not in said[-1]:
            said.append(process.stdout.readline())
            assert said[-1], "".join(said)
        yield
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0


@pytest.mark.peer("pika")
def test_without_extras_a_broker_serves_clients(release: Release) -> None:
    port = free_port()
    with (
        _running(release, BROKER.replace("PORT", str(port))),
        pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection,
    ):
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("q")
        channel.basic_publish("", "q", b"hello")
        method, _, body = channel.basic_get("q")
        channel.basic_ack(method.delivery_tag)
        assert body == b"hello"


def test_without_extras_every_command_has_help(release: Release) -> None:
    printed = release.environment.command("python", "-c", HELP, cwd=release.folder)
    assert "no help" not in printed
    assert {"run", "journal", "journal export", "inspect", "pipeline run"} <= set(printed.splitlines())


@pytest.mark.parametrize(
    "command, extra",
    [
        (("journal", "ls", "somewhere"), "journal"),
        (("inspect", "some.pcap"), "inspect"),
        (("pipeline", "sql", "select 1", "--journal", "somewhere"), "spark"),
    ],
)
def test_without_its_extra_a_command_names_it(release: Release, command: tuple[str, ...], extra: str) -> None:
    printed = release.environment.command("kernel", *command, cwd=release.folder, status=1)
    assert f"messaging-kernel[{extra}]" in printed
    assert "Traceback" not in printed


def test_every_extra_that_is_for_users_is_tried_here(release: Release) -> None:
    tried = {name.removeprefix("test_with_") for name in globals() if name.startswith("test_with_")}
    assert tried == release.extras() - FOR_DEVELOPERS


def test_with_curve(release: Release, tmp_path: Path) -> None:
    paths = [release.with_extra("curve")]
    release.environment.command("kernel", "zmq-keys", "server", cwd=tmp_path, paths=paths)
    printed = release.environment.command("python", "-c", CURVE, cwd=tmp_path, paths=paths)
    assert printed.splitlines() == ["hello"]


def test_with_inspect(release: Release, tmp_path: Path) -> None:
    here = bytes((127, 0, 0, 1))
    (tmp_path / "x.pcap").write_bytes(pcap([(1.0, 132, here, here, bytes(12))]))
    extra = release.with_extra("inspect")
    printed = release.environment.command("kernel", "inspect", "x.pcap", cwd=tmp_path, paths=[extra])
    assert "sctp" in printed.lower()


def test_with_journal(release: Release, tmp_path: Path) -> None:
    extra = release.with_extra("journal")
    release.environment.command("python", "-c", JOURNAL, "journal", cwd=tmp_path, paths=[extra])
    printed = release.environment.command("kernel", "journal", "cat", "journal", cwd=tmp_path, paths=[extra])
    assert [line.split()[-1] for line in printed.splitlines()] == ["one", "two", "three"]


def test_with_otel(release: Release, tmp_path: Path) -> None:
    printed = release.environment.command(
        "python", "-c", TRACES, cwd=tmp_path, paths=[release.with_extra("otel")]
    )
    assert "1 span" in printed.splitlines()  # beside what the SDK says of the collector


def test_with_sctp(release: Release, tmp_path: Path) -> None:
    extra = release.with_extra("sctp")
    printed = release.environment.command("python", "-c", SCTP, cwd=tmp_path, paths=[extra])
    assert printed.splitlines() == ["hello", "by the library"]


def test_with_spark(release: Release, tmp_path: Path) -> None:
    extra = release.with_extra("spark")
    release.environment.command("python", "-c", JOURNAL, "journal", cwd=tmp_path, paths=[extra])
    printed = release.environment.command("python", "-c", SPARK, "journal", cwd=tmp_path, paths=[extra])
    assert printed.splitlines()[-1] == "3 rows"


def test_with_web(release: Release, tmp_path: Path) -> None:
    printed = release.environment.command(
        "python", "-c", WEB, cwd=tmp_path, paths=[release.with_extra("web")]
    )
    assert printed.splitlines() == ["hello"]
