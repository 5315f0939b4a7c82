"""The distributions of strangers: installed into a fresh environment, found, used, and tested by their own tests.

No package index is needed: the environment sees this one's packages, and what is installed comes from ``examples/``.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.third_party.environments import OFFLINE, PIP, Environment

EXAMPLES = Path(__file__).parents[2] / "examples"
DISTRIBUTIONS = (
    "third_party_protocol",
    "third_party_engine",
    "third_party_exchange",
    "third_party_front_end",
    "third_party_nats",
    "third_party_webhook",
)

pytestmark = [
    pytest.mark.slow,  # processes of their own
    pytest.mark.xdist_group("third-party"),  # one environment, and not one in each process
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


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """An environment with the distributions in it; what is returned runs its Python."""
    folder = tmp_path_factory.mktemp("third_party")
    environment = Environment(folder / "venv")
    environment.see_ours()

    def run(*arguments: str, cwd: Path = folder) -> str:
        return environment.command("python", *arguments, cwd=cwd)

    sources = []
    for name in DISTRIBUTIONS:  # copies, because building leaves things behind
        ignored = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
        sources.append(str(shutil.copytree(EXAMPLES / name, folder / name, ignore=ignored)))
    run(*PIP, "install", *OFFLINE, *sources)
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


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_their_own_tests_pass_where_they_are_installed(
    environment: Installed, tmp_path: Path, name: str
) -> None:
    """Without their sources beside them: only the tests are copied."""
    shutil.copytree(EXAMPLES / name / "tests", tmp_path / "tests")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    assert " passed" in environment("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests", cwd=tmp_path)


def test_nobody_else_has_them(tmp_path: Path) -> None:
    """Without the installation there is no such protocol: what the other tests see comes from it."""
    from kernel.contracts.errors import PlanError
    from kernel.topology.system import Kernel

    (tmp_path / "system.toml").write_text(TOPOLOGY)
    with pytest.raises(PlanError, match=r"(?s)ticker.*lines"):
        Kernel.from_file(tmp_path / "system.toml")
