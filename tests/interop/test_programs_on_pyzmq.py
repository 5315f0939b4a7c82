"""Programs of others that use pyzmq, unmodified, with suites of their own, on our backend.

PyLECO controls instruments in laboratories (DEALER, ROUTER, PUB, XPUB, PAIR over inproc, a proxy, a logger); zmq_tubes
routes topics over sockets of all types, in threads and in tasks of asyncio.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.client_suites import Suite, check_results, own_environment, run_suite
from tests.peers import PROGRAMS_PYTHON, PROGRAMS_SUITES

pytestmark = [
    pytest.mark.peer("programs"),
    # Fixed ports, which may just be those of somebody's connections.
    pytest.mark.peer("namespaces"),
    pytest.mark.slow,
    pytest.mark.timeout(500),
]

_IN_A_NETWORK = ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", str(PROGRAMS_PYTHON))

_PYLECO = {
    # In processes of their own: they leave timers that write to the log, whose last line other tests look at.
    "actors": ("tests/actors",),
    "live": ("tests/acceptance_tests",),
    "rest": tuple(
        f"tests/{name}"
        for name in (
            "coordinators",
            "core",
            "directors",
            "json_utils",
            "management",
            "test_test.py",
            "utils",
        )
    ),
}
_LEAST = {"actors": 100, "live": 24, "rest": 850}


def _pyleco(part: str) -> Suite:
    return Suite(
        "pyleco",
        _PYLECO[part],
        _LEAST[part],
        # For the filter of names; nothing is left out.
        {"nothing_at_all": ""},
        configuration="/dev/null",
        # Qt is not installed; a test that hangs in its authors' CI; what they expect to fail.
        may_skip=True,
        home=PROGRAMS_SUITES,
        command=_IN_A_NETWORK,
    )


_TUBES = Suite(
    "zmq_tubes",
    ("tests",),
    75,
    {"(threads and test_pub_subs)": "publishes at once, perhaps before a subscription has come"},
    ("-p", "coroutines"),
    "/dev/null",
    home=PROGRAMS_SUITES,
    command=_IN_A_NETWORK,
)
_TRIES = 3
"""They wait 0.1 s for answers, and for a publisher to know its subscribers, which on a busy machine is not enough,
with libzmq as well."""


@pytest.mark.parametrize(
    "suite",
    [*map(_pyleco, _PYLECO), _TUBES],
    ids=[*(f"pyleco, {part}" for part in _PYLECO), "zmq_tubes"],
)
def test_its_suite_passes(suite: Suite, tmp_path: Path) -> None:
    environment = own_environment() | {"PYZMQ_BACKEND": "plugins.apis.sockets.pyzmq_backend"}
    # It imports its own package ``tests``, so the plugin is not imported from ours.
    paths = (suite.home / suite.folder, environment["PYTHONPATH"], Path(__file__).parent / "suites")
    environment["PYTHONPATH"] = ":".join(map(str, paths))
    results = run_suite(suite, tmp_path, environment)
    for _ in range(1, _TRIES):
        if any(results.values()):
            results = run_suite(suite, tmp_path, environment)
    check_results(suite, results)
