"""``kernel zmq-keys``."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from plugins.engines.zmq.certificates import read_certificate
from plugins.engines.zmq.keys_command import command

pytest.importorskip("nacl")


def test_a_pair_is_printed() -> None:
    shown = CliRunner().invoke(command, [])
    assert shown.exit_code == 0
    public, secret = (line.split('"')[1] for line in shown.output.splitlines())
    assert len(public) == len(secret) == 40
    assert "$" not in public + secret


def test_certificates_are_written_once_and_the_secret_one_is_for_its_owner(tmp_path: Path) -> None:
    arguments = ["server", "--folder", str(tmp_path / "keys")]
    shown = CliRunner().invoke(command, arguments)
    assert shown.exit_code == 0, shown.output
    public, secret = (Path(line) for line in shown.output.splitlines())
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    keys = read_certificate(secret)
    assert read_certificate(public).public == keys.public
    assert read_certificate(public).secret == ""
    assert keys.secret not in shown.output
    again = CliRunner().invoke(command, arguments)
    assert again.exit_code == 1
    assert "server.key_secret: File exists" in again.output
    assert read_certificate(secret) == keys
    secret.unlink()
    # Not a secret file that stops the next try.
    assert "server.key: File exists" in CliRunner().invoke(command, arguments).output
    assert not secret.exists()


@pytest.mark.peer("pyzmq")
def test_pyzmq_reads_them_and_finds_that_they_belong_together(tmp_path: Path) -> None:
    import zmq
    import zmq.auth

    CliRunner().invoke(command, ["server", "--folder", str(tmp_path)])
    public, secret = zmq.auth.load_certificate(tmp_path / "server.key_secret")
    assert secret is not None
    assert zmq.curve_public(secret) == public


def test_without_pynacl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "plugins.protocols.zmtp.boxes", raising=False)
    monkeypatch.setitem(sys.modules, "nacl", None)
    shown = CliRunner().invoke(command, [])
    assert shown.exit_code == 1
    assert "pip install 'messaging-kernel[curve]'" in shown.output


def test_a_name_is_no_path() -> None:
    assert "no name of a file" in CliRunner().invoke(command, ["../server"]).output
