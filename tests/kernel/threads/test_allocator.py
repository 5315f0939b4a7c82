"""What a turn frees stays with the process; tried in processes of their own, since it is set once for all."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's malloc is what is set")

# Turns as the engines take them: a read, and what is written for it, several buffers together.
_FAULTS_OF_TURNS = """
import resource, sys, threading
from kernel.threads.allocator import keep_freed_memory

def take_turns():
    def turn():
        [bytearray(size) for size in (262_144, 100_000, 262_144)]
    for _ in range(10):
        turn()
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    for _ in range(100):
        turn()
    print(int(done), resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before)

done = sys.argv[1] == "keep" and keep_freed_memory()
thread = threading.Thread(target=take_turns)
thread.start()
thread.join()
"""


def _faults_of_turns(what: str, **environment: str) -> tuple[bool, int]:
    """Return whether something was set, and the page faults of a hundred turns in a thread."""
    ran = subprocess.run(
        [sys.executable, "-c", _FAULTS_OF_TURNS, what],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    )
    done, faults = ran.stdout.split()
    return done == "1", int(faults)


@pytest.mark.slow
def test_turns_do_not_have_their_memory_mapped_anew_each_time() -> None:
    _, before = _faults_of_turns("leave")
    done, after = _faults_of_turns("keep")
    assert done
    assert before > 1000, "the C library keeps it by itself: there is nothing to set any more"
    assert after < before / 20


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, value",
    [("MALLOC_TRIM_THRESHOLD_", "131072"), ("GLIBC_TUNABLES", "glibc.malloc.trim_threshold=131072")],
)
def test_what_the_user_has_set_stays(name: str, value: str) -> None:
    done, _ = _faults_of_turns("keep", **{name: value})
    assert not done
