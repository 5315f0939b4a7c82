"""The suite of pyzmq, unchanged, on our backend."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.client_suites import Suite, check_results, own_environment, run_suite

pytestmark = [pytest.mark.peer("client-suites"), pytest.mark.slow, pytest.mark.timeout(400)]

_SUITE = Suite(
    "pyzmq",
    ("tests",),
    220,
    {
        "test_above_30": "counts references that the memory collector of libzmq holds",
        "test_lifecycle": "counts references that the memory collector of libzmq holds",
        "test_large_send": "needs 6 GB of memory",
        "test_mypy": "checks the types of pyzmq, and its examples: nothing of a backend",
        "test_cffi_backend": "is about another backend",
        "test_win32_shim": "is for Windows",
    },
    ("-p", "tests.interop.suites.coroutines"),
    "pytest.ini",
    # Without gevent, tornado and Cython, and what libzmq has only as a draft.
    may_skip=True,
)


def test_the_suite_of_pyzmq_passes(tmp_path: Path) -> None:
    environment = own_environment() | {"PYZMQ_BACKEND": "plugins.apis.sockets.pyzmq_backend"}
    check_results(_SUITE, run_suite(_SUITE, tmp_path, environment))
