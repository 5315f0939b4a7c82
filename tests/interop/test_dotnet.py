"""Everyday life with the old client for .NET that Mono has, in AMQP 0-8 and 0-9; dotnet/Everyday.cs has the checks."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.interop.brokers import Broker
from tests.peers import DOTNET_CLIENT

pytestmark = [pytest.mark.peer("dotnet-client"), pytest.mark.slow]

SOURCE = Path(__file__).parent / "dotnet" / "Everyday.cs"
CHECKS = re.findall(r"static void (\w+)\(IConnection", SOURCE.read_text(encoding="utf-8"))
TIMEOUT = 120.0


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled program, beside a link to the client, where Mono looks for it."""
    folder = tmp_path_factory.mktemp("dotnet")
    (folder / "RabbitMQ.Client.dll").symlink_to(DOTNET_CLIENT)
    program = folder / "Everyday.exe"
    command = ["mcs", f"-r:{DOTNET_CLIENT}", f"-out:{program}", str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert done.returncode == 0, done.stderr
    return program


@pytest.mark.parametrize("protocol", ["AMQP_0_8", "AMQP_0_9"])
@pytest.mark.parametrize("check", CHECKS)
def test_a_day_with_the_old_client(
    broker: Broker, name: str, program: Path, check: str, protocol: str
) -> None:
    command = ["mono", str(program), protocol, check, str(broker.port), name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
