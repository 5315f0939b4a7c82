"""``examples/watched_broker.toml``, run as its first lines say."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.ports import free_port

EXAMPLE = Path(__file__).parents[2] / "examples" / "watched_broker.toml"
TIMEOUT = 60.0


class Watched(NamedTuple):
    """Where it listens."""

    amqp: int
    web: int


@contextmanager
def watched_broker() -> Iterator[Watched]:
    ports = Watched(free_port(), free_port())
    environment = os.environ | {"AMQP_PORT": str(ports.amqp), "WEB_PORT": str(ports.web)}
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "kernel", "run", str(EXAMPLE), "--no-control", "--ready-fd", str(writing)],
        env=environment,
        pass_fds=(writing,),
        stdout=subprocess.DEVNULL,
    )
    os.close(writing)
    try:
        with os.fdopen(reading) as ready:
            assert ready.read() == "ready\n"
        yield ports
    finally:
        process.terminate()
        assert process.wait(TIMEOUT) == 0
