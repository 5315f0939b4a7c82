"""The suite of pyzmq, unchanged, on our backend."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.interop.client_suites import Suite, check_results, count_run, own_environment, run_suite
from tests.peers import PROGRAMS_PYTHON

pytestmark = [
    pytest.mark.peer("client-suites"),
    pytest.mark.peer("programs"),
    pytest.mark.slow,
    pytest.mark.timeout(600),
]

_OTHERS = " or ".join(
    ["asyncio", "cython", "gevent", "logger", "mongodb", "pubsub", "recv_into", "serialization"]
)
"""Examples that import what is not installed, or in which the present mypy and numpy find other types."""

_CFFI = "calls libzmq through CFFI, the backend for PyPy"
_CYTHON = "compiles a module against libzmq"
_PYCZMQ = "shares sockets with pyczmq, another binding of libzmq, in one memory"
_BUNDLED = "asks what the libzmq that is bundled with a wheel was built with"
_WINDOWS = "Windows"
_OF_LIBZMQ = {
    "test_cffi_backend": _CFFI,
    "test_cython": _CYTHON,
    "test_shadow_pyczmq": _PYCZMQ,
    "test_etc.test_has_": _BUNDLED,
    "test_win32_shim": _WINDOWS,
}
"""What is about libzmq itself, or another system."""
_UNWRITTEN = "says that it is still to be written"
_NOT_GREEN = "is for the class that is not green; there it runs"
_BY_THEMSELVES = {
    "TestEINTRSysCall.test_retry_getsockopt": _UNWRITTEN,
    "TestEINTRSysCall.test_retry_setsockopt": _UNWRITTEN,
    "TestPubSubGreen.test_topic": _NOT_GREEN,
    "TestSocketGreen.test_bad_attr": _NOT_GREEN,
    "TestSocketGreen.test_close_after_destroy": _NOT_GREEN,
}

_SUITE = Suite(
    "pyzmq",
    ("tests",),
    419,
    {
        "test_above_30": "counts references that the memory collector of libzmq holds",
        "test_lifecycle": "counts references that the memory collector of libzmq holds",
        "test_curve_keygen_secret": "takes a secret that begins with a hyphen, one in 85, for an option",
        "test_large_send": "needs 6 GB of memory",
        f"(test_mypy_example and ({_OTHERS}))": "types of the suite's own examples; fails with libzmq as well",
    },
    # Its tests look at warnings.
    (
        *("-p", "tests.interop.suites.coroutines", "-p", "tests.interop.suites.steerable"),
        *("-p", "tests.interop.suites.forked", "-W", "default"),
    ),
    "pytest.ini",
    skips=_OF_LIBZMQ | _BY_THEMSELVES,
    soon={
        "test_recv_json_cancelled": "a message, within 5 ms",
        "test_auth.TestThreadAuthentication.test_curve": "a connection and its keys, within 100 ms",
    },
    # There gevent is, which the tests of ``zmq.green`` need.
    command=(str(PROGRAMS_PYTHON),),
)
_MOST_LEFT_OUT = 0.05
_PAGE = Path(__file__).parents[2] / "docs" / "sockets.md"


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
    done = count_run(_SUITE, tmp_path)
    # Each reason is still one.
    assert set(done.skipped) == set(_SUITE.skips.values())
    of_libzmq = sum(done.skipped[why] for why in set(_OF_LIBZMQ.values()))
    by_themselves = sum(done.skipped[why] for why in set(_BY_THEMSELVES.values()))
    everything = done.ran + done.left_out + of_libzmq + by_themselves
    assert (done.left_out + by_themselves) / everything <= _MOST_LEFT_OUT
    told = (
        f"{done.ran} of its {everything} tests run, those of `zmq.green` too; {done.left_out} are left out: "
    )
    assert told in _PAGE.read_text()
    assert f"{of_libzmq + by_themselves} leave themselves out: {of_libzmq} " in _PAGE.read_text()
