"""The tests of the system's own SCTP, in a user-mode Linux that has it: this file runs them there, on our files."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.plugins.protocols.sctp.linux import user_mode

pytestmark = [
    pytest.mark.peer("user-mode-linux"),
    pytest.mark.slow,
    pytest.mark.timeout(600),
]

HERE = Path(__file__).parent
ROOT = HERE.parents[3]
OPTIONS = "-q --color=no --tb=short -p no:cacheprovider -rs --durations=12"
SECONDS = 580
FILES = ("test_engine.py", "test_system.py", "test_paths.py")


def test_in_a_guest(tmp_path: Path) -> None:
    job = f"""
        cd {ROOT}
        echo 9899 > /proc/sys/net/sctp/udp_port
        ip link set lo gso_max_segs 1
        export PYTHONDONTWRITEBYTECODE=1
        {sys.executable} -m pytest {OPTIONS} -k system {" ".join(str(HERE / file) for file in FILES)}
    """
    status, printed = user_mode.run(tmp_path, job, SECONDS)
    assert status == 0, printed
    assert re.search(r"^\d+ passed", printed, re.MULTILINE), printed
    assert "SKIPPED" not in printed, printed
