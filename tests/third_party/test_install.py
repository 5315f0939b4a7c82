"""The distributions of strangers: installed into fresh environments, found, used, and tested by their own tests.

An environment has the project's wheel, the wheels that are made from ``examples/``, and what these ask for.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.third_party.environments import (
    OFFLINE,
    PIP,
    ROOT,
    Environment,
    build_release,
    link_distributions,
    run_python,
)

EXAMPLES = ROOT / "examples"
DISTRIBUTIONS = {
    "third_party_protocol": "kernel-lines",
    "third_party_engine": "kernel-ticker",
    "third_party_exchange": "kernel-consistent-hash",
    "third_party_front_end": "kernel-beanstalk",
    "third_party_nats": "kernel-nats",
    "third_party_webhook": "kernel-webhook",
}
"""Folders, and what the distributions in them are called."""
PEERS = {"third_party_front_end": "greenstalk", "third_party_nats": "nats-py"}
"""Clients of others, without which their own tests skip a part."""

pytestmark = [
    pytest.mark.slow,  # processes of their own
    pytest.mark.xdist_group("third-party"),  # the wheels are built once, and not in each process
]

Installed = Callable[..., str]

TOPOLOGY = """
[engines.clock]
kind = "ticker"
seconds = 0.01
text = "tick"

[engines.lines]
kind = "stream"
mode = "listen"
address = "lines+tcp://127.0.0.1:0"
protocol = { max_line = 100 }

[engines.app]
kind = "native"

[[routes]]
from = "clock"
to = "lines"

[[routes]]
from = "lines"
to = "app"
"""

PROGRAM = """
import socket, sys
from kernel import Kernel

with Kernel.from_file(sys.argv[1]) as kernel, kernel.open("app") as app:
    kernel.wait_running()
    port = int(kernel.address_of("lines").rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=60) as peer, peer.makefile("rwb") as lines:
        lines.write(b"hello\\n")
        lines.flush()
        print(bytes(app.receive(timeout=60)).decode())
        numbers = [int(lines.readline().removeprefix(b"tick ")) for _ in range(3)]
        print("in order" if numbers == [numbers[0], numbers[0] + 1, numbers[0] + 2] else numbers)
for name in ("lines", "ticker"):
    print(kernel.registry.plugins[name])
"""


class Wheels(msgspec.Struct):
    """What is installed: the project's wheel, and the one of each folder."""

    ours: Path
    theirs: dict[str, Path]

    def environment(self, folder: Path, *names: str) -> Environment:
        """Make an environment with these distributions, what they ask for, and nothing else."""
        made = Environment(folder / "environment")
        made.install(self.ours, *(self.theirs[name] for name in names))
        for name in names:
            link_distributions(made.requirements(DISTRIBUTIONS[name]), "", made)
        return made


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Wheels:
    folder = tmp_path_factory.mktemp("third_party")
    _, ours = build_release(folder)
    theirs = {}
    for name, distribution in DISTRIBUTIONS.items():  # from copies, because building leaves things behind
        ignored = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
        shutil.copytree(EXAMPLES / name, folder / name, ignore=ignored)
        theirs[name] = folder / f"{distribution.replace('-', '_')}-1.0-py3-none-any.whl"
    sources = [str(folder / name) for name in DISTRIBUTIONS]
    run_python(*PIP, "wheel", *OFFLINE, "--wheel-dir", str(folder), *sources, cwd=folder)
    return Wheels(ours, theirs)


@pytest.fixture(scope="module")
def environment(wheels: Wheels, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """An environment with all of them in it; what is returned runs its Python."""
    folder = tmp_path_factory.mktemp("together")
    made = wheels.environment(folder, *DISTRIBUTIONS)

    def run(*arguments: str) -> str:
        return made.command("python", *arguments, cwd=folder)

    return run


def test_both_are_found_and_work_together_in_a_topology(environment: Installed, tmp_path: Path) -> None:
    (tmp_path / "system.toml").write_text(TOPOLOGY)
    (tmp_path / "program.py").write_text(PROGRAM)
    lines = environment(str(tmp_path / "program.py"), str(tmp_path / "system.toml")).splitlines()
    assert lines == [
        "hello",
        "in order",
        "plugin 'lines' of kernel-lines 1.0",
        "plugin 'ticker' of kernel-ticker 1.0",
    ]


def test_the_command_line_knows_them(environment: Installed, tmp_path: Path) -> None:
    (tmp_path / "system.toml").write_text(TOPOLOGY)
    listed = environment("-m", "kernel", "plugins")
    assert "kernel-lines 1.0" in listed
    assert "kernel-ticker 1.0" in listed
    assert "x-consistent-hash" in listed
    assert "kernel-beanstalk 1.0" in listed
    assert "kernel-nats 1.0" in listed
    for topology in (tmp_path / "system.toml", EXAMPLES / "third_party_nats" / "nats_server.toml"):
        assert "good" in environment("-m", "kernel", "check", str(topology))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.peer(PEERS[name])] if name in PEERS else [])
        for name in DISTRIBUTIONS
    ],
)
def test_their_own_tests_pass_where_they_are_installed(wheels: Wheels, tmp_path: Path, name: str) -> None:
    """Alone, with pytest and what they ask for to be tested.  Only the tests are copied, and none may be skipped."""
    environment = wheels.environment(tmp_path, name)
    link_distributions(["pytest", *environment.requirements(DISTRIBUTIONS[name])], "test", environment)
    tests = tmp_path / "tests"
    shutil.copytree(EXAMPLES / name / "tests", tests)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    printed = environment.command(
        "python", "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "tests", cwd=tmp_path
    )
    assert " passed" in printed
    assert " skipped" not in printed, printed


def test_nobody_else_has_them(tmp_path: Path) -> None:
    """Without the installation there is no such protocol: what the other tests see comes from it."""
    from kernel.contracts.errors import PlanError
    from kernel.topology.system import Kernel

    (tmp_path / "system.toml").write_text(TOPOLOGY)
    with pytest.raises(PlanError, match=r"(?s)ticker.*lines"):
        Kernel.from_file(tmp_path / "system.toml")
