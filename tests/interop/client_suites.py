"""Whole suites of clients, from their source distributions (``make suites``): what they are, and how they are run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import msgspec

from tests.peers import CLIENT_SUITES


class Suite(msgspec.Struct, frozen=True):
    """A suite, and what of it is not for any broker of a test."""

    folder: str
    """Where it is, below ``home``."""
    tests: tuple[str, ...]
    least: int
    """How many tests it has at least: fewer, and it did not run."""
    left_out: dict[str, str] = {}
    """Parts of tests' names, and why neither broker can pass them here."""
    options: tuple[str, ...] = ()
    configuration: str = "setup.cfg"
    may_skip: bool = False
    """Whether tests may leave themselves out, because of what the broker has nothing to do with."""
    skips: dict[str, str] = {}
    """Parts of the names of tests that leave themselves out, and why they may.  Others may not, without ``may_skip``."""
    soon: dict[str, str] = {}
    """Parts of the names of tests that wait for a few milliseconds only, and what for.

    A busy machine fails them whoever answers, so that they may be tried several times.
    """
    home: Path = CLIENT_SUITES
    command: tuple[str, ...] = (sys.executable,)
    """What runs Python."""


def own_environment() -> dict[str, str]:
    """Return the environment of a process that runs a suite with plugins of ours."""
    # What this run of pytest has set is not for another one, such as the number of its process.
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return own | {"PYTHONPATH": str(Path(__file__).parents[2])}


_TRIES = 5
"""Of a test of ``Suite.soon``: beside eight busy processes on two cores one in eight fails with libzmq."""


def run_suite(suite: Suite, here: Path, environment: dict[str, str], seconds: float = 500) -> dict[str, str]:
    """Run a suite in a process of its own; return what went wrong in each of its tests, empty if nothing.

    ``here``: its working directory, which has files for it; no other suite that runs meanwhile has the same.
    """
    results = _run_tests(suite, here, environment, seconds)
    for again in range(1, _TRIES):
        failed = {name for name, why in results.items() if why and any(part in name for part in suite.soon)}
        if not failed:
            break
        functions = {name.partition("[")[0].rpartition(".")[2] for name in failed}
        (there := here / f"again-{again}").mkdir()
        tried = _run_tests(suite, there, environment, seconds, f"({' or '.join(sorted(functions))})")
        results |= {name: why for name, why in tried.items() if name in failed}
    return results


def _run_tests(
    suite: Suite, here: Path, environment: dict[str, str], seconds: float, *only: str
) -> dict[str, str]:
    chosen = " and ".join([*only, *(f"not {name}" for name in suite.left_out)])
    folder = suite.home / suite.folder
    results = here / f"{suite.folder}.xml"
    done = subprocess.run(
        [
            *(
                *suite.command,
                "-m",
                "pytest",
                "-q",
                "--rootdir",
                str(folder),
                # Ours are in the folders above.
                "--confcutdir",
                str(folder),
                "-c",
                str(folder / suite.configuration),
            ),
            *("-p", "no:cacheprovider", "-W", "ignore", "--timeout", "60", f"--junitxml={results}"),
            # AMQPStorm's wheel has the suite as well, and a plugin of ours imports it from there.
            *("--import-mode=importlib", "-k", chosen),
            *(*suite.options, *(str(folder / tests) for tests in suite.tests)),
        ],
        cwd=here,
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert results.exists(), done.stdout + done.stderr
    (here / f"{suite.folder}.txt").write_text(done.stdout)
    return {
        f"{case.get('classname')}.{case.get('name')}": "".join(
            f"{problem.tag}: {problem.get('message')}\n{problem.text}"
            for problem in case
            if problem.tag in ("failure", "error", "skipped")
        )
        for case in ElementTree.parse(results).iter("testcase")
        if case.find("skipped") is None or not (suite.may_skip or _reason(suite, case))
    }


def _reason(suite: Suite, case: ElementTree.Element) -> str:
    name = f"{case.get('classname')}.{case.get('name')}"
    return next((why for part, why in suite.skips.items() if part in name), "")


class Run(msgspec.Struct, frozen=True):
    """How many tests ran, and how many did not."""

    ran: int
    skipped: dict[str, int]
    """By the reasons of ``Suite.skips``."""
    left_out: int


def count_run(suite: Suite, here: Path) -> Run:
    """Return what has become of the tests of a suite that ``run_suite`` has run."""
    cases = list(ElementTree.parse(here / f"{suite.folder}.xml").iter("testcase"))
    skipped = Counter(_reason(suite, case) for case in cases if case.find("skipped") is not None)
    (left_out,) = re.findall(r"(\d+) deselected", (here / f"{suite.folder}.txt").read_text())
    return Run(len(cases) - skipped.total(), dict(skipped), int(left_out))


def check_results(suite: Suite, results: dict[str, str]) -> None:
    """Fail if a test of a suite has failed, or if it did not run."""
    failed = {name: why for name, why in results.items() if why}
    assert not failed, "\n".join(f"{name}: {why}" for name, why in failed.items())
    assert len(results) >= suite.least
