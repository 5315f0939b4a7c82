"""The ``kernel`` command, as a user types it; without a running system (see test_run.py)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import click
import pytest

from kernel.cli import main as cli
from kernel.contracts.kinds import CommandKind
from kernel.plugins import Installed, Origin, PluginRegistry

GOOD = """
[engines.link]
kind = "stream"
address = "backend+tcp://127.0.0.1:1"
[engines.app]
kind = "native"
[[routes]]
from = "app"
to = "link"
"""

ROOT = Path(__file__).resolve().parents[3]
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def kernel(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run the command in this process; give exit status, output and errors."""

    def run(*arguments: object) -> tuple[int, str, str]:
        status = cli.run(list(map(str, arguments)))
        return (status, *capsys.readouterr())

    return run


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.toml"
    path.write_text(GOOD)
    return path


@pytest.mark.slow
def test_help_lists_every_command_and_imports_none() -> None:
    code = "import sys, kernel.cli.main as m; m.run(['--help']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert all(f"\n  {name} " in done.stdout for name in ("run", "check", "draw", "plugins", "new"))
    assert {"trio", "rich", "kernel.cli.run", "kernel.topology.system"}.isdisjoint(done.stderr.split())


def test_the_help_has_each_command_once_and_those_of_plugins_last(kernel: Command) -> None:
    listed = re.findall(r"^  ([a-z]\S*)  ", kernel("--help")[1], flags=re.MULTILINE)
    assert len(listed) == len(set(listed))
    assert set(listed[: len(cli.COMMANDS)]) == set(cli.COMMANDS)
    assert "queues" in listed


def test_the_summaries_are_the_first_lines_of_the_commands_own_help(kernel: Command) -> None:
    group = cli.cli
    assert isinstance(group, cli.CommandGroup)
    for name in ("run", "check", "draw", "plugins", "new"):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        assert command.help, name
        assert kernel(name, "--help")[0] == 0


def test_a_misspelt_command_gets_a_hint(kernel: Command) -> None:
    status, _, errors = kernel("chek", "x")
    assert status == cli.USAGE
    assert "there is no command 'chek'; did you mean 'check'?" in errors


def test_commands_of_plugins_are_found_and_cannot_replace_ours(
    kernel: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = PluginRegistry.load()
    greet = click.Command("greet", callback=lambda: click.echo("hello"))
    kind = CommandKind(name="greet", summary="says hello", load=lambda: greet)
    origin = Origin("p", "d", "1")
    registry.commands["greet"] = Installed(kind, origin)
    registry.commands["check"] = Installed(
        CommandKind(name="check", summary="not ours", load=lambda: greet), origin
    )
    monkeypatch.setattr(PluginRegistry, "load", lambda: registry)
    assert kernel("greet") == (0, "hello\n", "")
    assert "says hello" in kernel("--help")[1]
    assert "not ours" not in kernel("--help")[1]


def test_check_says_that_a_file_is_good(kernel: Command, good: Path) -> None:
    assert kernel("check", good) == (0, f"{good}: good: 1 thread, 2 engines, 1 route\n", "")


def test_check_counts_processes_and_routes_between_them(kernel: Command, tmp_path: Path) -> None:
    file = tmp_path / "two.toml"
    text = '[threads.p]\nkind = "process"\n'
    text += '[engines.a]\nkind = "hub"\nthread = "p"\n[engines.b]\nkind = "hub"\nthread = "poll-1"\n'
    file.write_text(text + '[[routes]]\nfrom = "a"\nto = "b"\n')
    assert kernel("check", file)[1].endswith(
        "good: 1 thread, 1 process, 2 engines, 1 route (1 between processes)\n"
    )


def test_check_prints_warnings_and_does_not_fail(kernel: Command, good: Path) -> None:
    good.write_text(GOOD + 'match = "a..b"\n')
    status, output, _ = kernel("check", good)
    assert status == 0
    first, second = output.splitlines()
    assert first.startswith(f"{good}:10: warning: match = 'a..b' has an empty word")
    assert second == f"{good}: good: 1 thread, 2 engines, 1 route"


def test_check_looks_at_this_machine_unless_it_is_told_not_to(kernel: Command, good: Path) -> None:
    good.write_text(GOOD.replace("tcp", "tls") + '[engines.link.tls]\nauthorities = "/no/such.pem"\n')
    complaint = f"{good}:11: [engines.link] tls.authorities: /no/such.pem: No such file or directory\n"
    assert kernel("check", good) == (1, complaint, "")
    assert kernel("check", good, "--file-only") == (0, f"{good}: good: 1 thread, 2 engines, 1 route\n", "")


def test_check_prints_all_complaints_and_fails(kernel: Command, good: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text(GOOD.replace("address", "adress").replace('to = "link"', 'to = "lnk"'))
    status, output, _ = kernel("check", good, bad)
    assert status == cli.FAILED
    assert output.splitlines()[1:] == [
        f"{bad}:4: [engines.link] has no key 'adress'; did you mean 'address'?",
        f"{bad}:9: this route leads to 'lnk', which is no engine of this file; did you mean 'link'?",
    ]


def test_run_and_draw_of_a_bad_file_print_its_complaints(kernel: Command, tmp_path: Path) -> None:
    for name in ("run", "draw"):
        status, _, errors = kernel(name, tmp_path / "none.toml")
        assert (status, errors) == (cli.FAILED, f"{tmp_path}/none.toml: No such file or directory\n")


def test_draw_prints_mermaid_or_the_matrix_and_writes_svg(
    kernel: Command, good: Path, tmp_path: Path
) -> None:
    assert kernel("draw", good)[1].startswith("flowchart LR\n")
    assert kernel("draw", good, "--matrix")[1].startswith("| from")
    status, output, _ = kernel("draw", good, "--svg", tmp_path / "x.svg")
    assert (status, output) == (0, "")
    assert ElementTree.parse(tmp_path / "x.svg").getroot().tag.endswith("svg")
    assert kernel("draw", good, "--svg", "-")[1].startswith("<svg")


ODD_NUMBERS = (
    ["status", "--watch", "nan"],
    ["status", "--watch", "inf"],
    ["inspect", "--live", "lo", "--seconds", "nan"],
    ["inspect", "--live", "lo", "--seconds", "inf"],
    ["inspect", "none.pcap", "--as", "²=backend"],
    ["bench", "--seconds", "0"],
    ["bench", "--seconds", "-1"],
    ["bench", "--seconds", "nan"],
    ["bench", "--seconds", "inf"],
    ["run", "none.toml", "--linger", "nan"],
    ["run", "none.toml", "--linger", "-1"],
    ["run", "none.toml", "--ready-fd", "-1"],
    ["run", "none.toml", "--ready-fd", "99999999999"],
)


@pytest.mark.parametrize("arguments", ODD_NUMBERS, ids=" ".join)
def test_odd_numbers_are_wrong_usage(arguments: list[str], kernel: Command) -> None:
    status, _, errors = kernel(*arguments)
    assert status == cli.USAGE
    assert "Invalid value for" in errors


def test_a_ready_fd_that_cannot_be_written_to_is_wrong_usage(kernel: Command) -> None:
    reading, writing = os.pipe()
    os.close(writing)
    # More than a process may have open.
    closed = 0x7FFF_FFFF
    try:
        for descriptor, said in ((closed, "Bad file descriptor"), (reading, "open for reading only")):
            status, _, errors = kernel("run", "none.toml", "--ready-fd", str(descriptor))
            assert status == cli.USAGE
            assert f"--ready-fd {descriptor}: " in errors
            assert said in errors
    finally:
        os.close(reading)


def test_a_drawing_and_a_table_do_not_share_standard_output(kernel: Command) -> None:
    status, output, errors = kernel("draw", "none.toml", "--matrix", "--svg", "-")
    assert (status, output) == (cli.USAGE, "")
    assert "would both write to standard output" in errors


def test_plugins_lists_kinds_with_their_distribution(kernel: Command) -> None:
    status, output, _ = kernel("plugins")
    assert status == 0
    (line,) = [line for line in output.splitlines() if line.startswith("engine") and " stream " in line]
    assert "messaging-kernel" in line


def test_plugins_shows_the_options_of_one_kind(kernel: Command) -> None:
    _, output, _ = kernel("plugins", "stream")
    assert "engine stream: hosts any stream protocol" in output
    assert "max_connections" in output
    assert "whole number" in output
    status, _, errors = kernel("plugins", "straem")
    assert (status, errors) == (
        cli.FAILED,
        "kernel: nothing called 'straem' is installed; did you mean 'stream'?\n",
    )


def test_plugins_speaks_json(kernel: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNEL_PLUGINS", "stream,none")
    data: dict[str, Any] = json.loads(kernel("plugins", "--json")[1])
    stream = next(kind for kind in data["kinds"] if kind["name"] == "stream")
    assert stream["plugin"] == "stream"
    assert {"name": "address", "type": "text", "default": "required"} in stream["options"]
    assert data["refused"][0]["plugin"] == "none"


@pytest.mark.slow
@pytest.mark.parametrize("what", ["engine", "protocol", "api", "frontend"])
def test_new_writes_a_distribution_whose_tests_pass(what: str, kernel: Command, tmp_path: Path) -> None:
    status, output, _ = kernel("new", what, "my-own", "--into", tmp_path)
    assert status == 0
    folder = tmp_path / "kernel-my-own"
    assert f"{folder}/pyproject.toml\n" in output
    texts = [path.read_text() for path in folder.rglob("*") if path.is_file()]
    assert not any(
        "@" in text.replace("@hookimpl", "").replace("@pytest", "").replace("@property", "") for text in texts
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
    status, _, errors = kernel("new", what, "my-own", "--into", tmp_path)
    assert (status, errors) == (
        cli.FAILED,
        f"kernel: {folder} exists already; choose another NAME or --into; nothing was written\n",
    )


@pytest.mark.slow
def test_what_new_writes_is_in_order_and_typed(kernel: Command, tmp_path: Path) -> None:
    """One test for all four: after the first, mypy finds the kernel's types in its cache."""
    for what in ("engine", "protocol", "api", "frontend"):
        assert kernel("new", what, "zebra", "--into", tmp_path / what)[0] == 0
        for tool in (
            ("ruff", "check", "--isolated"),
            ("mypy", "--strict", "--cache-dir", tmp_path / "cache"),
        ):
            done = subprocess.run(
                [sys.executable, "-m", *tool, "."],
                cwd=tmp_path / what / "kernel-zebra",
                env={**os.environ, "MYPYPATH": str(ROOT)},
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, f"{what}: {done.stdout}"


@pytest.mark.slow
def test_new_takes_any_name_that_is_free(kernel: Command, tmp_path: Path) -> None:
    """Also one that its own tests would like to use."""
    assert kernel("new", "engine", "app", "--into", tmp_path)[0] == 0
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path / "kernel-app",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "what, name",
    [
        ("engine", "stream"),
        ("engine", "trio"),
        ("api", "amqp"),
        ("protocol", "backend"),
        ("api", "journal"),
        ("frontend", "amqp"),
    ],
)
def test_new_refuses_a_name_that_the_kernel_would_refuse(
    what: str, name: str, kernel: Command, tmp_path: Path
) -> None:
    status, _, errors = kernel("new", what, name, "--into", tmp_path)
    assert status == cli.FAILED
    assert errors.startswith(f"kernel: there is a {name!r} already, from plugin ")
    assert not list(tmp_path.iterdir())


def test_new_says_how_to_go_on_in_a_folder_with_spaces(kernel: Command, tmp_path: Path) -> None:
    _, output, _ = kernel("new", "engine", "zebra", "--into", tmp_path / "my plugins")
    assert f"cd '{tmp_path}/my plugins/kernel-zebra' && " in output


def test_new_refuses_a_name_that_is_no_name(kernel: Command, tmp_path: Path) -> None:
    status, _, errors = kernel("new", "engine", "My Own", "--into", tmp_path)
    assert status == cli.USAGE
    assert "must consist of small letters, digits and dashes" in errors
