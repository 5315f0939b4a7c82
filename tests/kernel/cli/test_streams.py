"""The ``kernel`` command where its output is full, closed, or of another encoding than UTF-8."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernel.cli import main as cli

PLAN = """
[engines."пример"]
kind = "stream"
address = "backend+tcp://127.0.0.1:1"
[engines.app]
kind = "native"
[[routes]]
from = "app"
to = "пример"
"""


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.toml"
    path.write_text(PLAN, encoding="utf-8")
    return path


def kernel(command: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Have a shell run the command, whose redirections are part of it."""
    return subprocess.run(
        ["bash", "-c", f"{sys.executable} -m kernel {command}"],
        capture_output=True,
        env={**os.environ, **environment},
    )


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("command", ["plugins", "draw {plan}", "check {plan}", "--help"])
def test_a_full_disk_is_said_in_one_line(command: str, plan: Path) -> None:
    done = kernel(f"{command.format(plan=plan)} >/dev/full")
    assert (done.returncode, done.stderr) == (cli.FAILED, b"kernel: No space left on device\n")


def test_a_drawing_that_cannot_be_written_is_said_in_one_line(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "none" / "x.svg"
    assert cli.run(["draw", str(plan), "--svg", str(place)]) == cli.FAILED
    assert capsys.readouterr().err == f"kernel: {place}: No such file or directory\n"


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@pytest.mark.parametrize("command", ["plugins", "draw --matrix {plan}", "draw {plan}", "check {plan}"])
def test_what_the_encoding_does_not_have_is_written_with_escapes(
    command: str, encoding: str, plan: Path
) -> None:
    done = kernel(command.format(plan=plan), PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.slow
def test_a_name_of_a_file_that_is_not_unicode_can_be_complained_of(tmp_path: Path) -> None:
    done = kernel(f"check {tmp_path}/$'b\\xff.toml'", PYTHONIOENCODING="utf-8:strict")
    assert done.returncode == cli.FAILED
    assert done.stdout == f"{tmp_path}/b\\udcff.toml: No such file or directory\n".encode()


@pytest.mark.slow
@pytest.mark.parametrize("closed", [">&-", ">&- 2>&- <&-"])
def test_a_service_with_closed_streams_runs(closed: str, plan: Path, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    done = kernel(f"run {plan} --no-control --ready-fd 7 7>{ready} {closed} & pid=$!; "
                  f"for i in $(seq 100); do [ -s {ready} ] && break; sleep 0.1; done; kill $pid; wait $pid")  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert ready.read_text() == "ready\n"
