"""The suite of pyzmq, unchanged, on our backend."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.interop.client_suites import Suite, check_results, own_environment, run_suite

pytestmark = [pytest.mark.peer("client-suites"), pytest.mark.slow, pytest.mark.timeout(600)]

_OTHERS = " or ".join(
    [
        "asyncio",
        "cython",
        "eventloop",
        "gevent",
        "heartbeat",
        "logger",
        "mongodb",
        "pubsub",
        "recv_into",
        "security",
        "serialization",
    ]
)
"""Examples that import what is not installed, or in which the present mypy and numpy find other types."""

_SUITE = Suite(
    "pyzmq",
    ("tests",),
    310,
    {
        "test_above_30": "counts references that the memory collector of libzmq holds",
        "test_lifecycle": "counts references that the memory collector of libzmq holds",
        "test_curve_keygen_secret": "takes a secret that begins with a hyphen, one in 85, for an option",
        "test_large_send": "needs 6 GB of memory",
        f"(test_mypy_example and ({_OTHERS}))": "types of the suite's own examples; fails with libzmq as well",
    },
    # Its tests look at warnings.
    ("-p", "tests.interop.suites.coroutines", "-W", "default"),
    "pytest.ini",
    # Without gevent and Cython, and what libzmq has only as a draft.
    may_skip=True,
)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Wait for other runs of the suite on this machine: it has fixed ports."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def test_the_suite_of_pyzmq_passes(tmp_path: Path) -> None:
    environment = own_environment() | {"PYZMQ_BACKEND": "plugins.apis.sockets.pyzmq_backend"}
    with _alone(Path(tempfile.gettempdir()) / "kernel-pyzmq-suite.lock"):
        results = run_suite(_SUITE, tmp_path, environment)
    check_results(_SUITE, results)
