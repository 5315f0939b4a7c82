"""Linux as a process (user-mode Linux), for programs of ours beside its SCTP: no processor is emulated, and it takes no root.

It reads the host's files, and its memory is all that it writes to.  Its own network has nothing of the host's.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import signal
import subprocess
from pathlib import Path

_HERE = Path(__file__).parent
_LINUX = _HERE / "image" / "linux.uml"
_MODULES = _HERE / "image" / "user_mode"


def is_there() -> bool:
    """Whether all is there that it is made of."""
    there = (
        all(map(shutil.which, ("busybox", "gcc", "ip")))
        and _LINUX.exists()
        and (_MODULES / "sctp.ko").exists()
    )
    return there and platform.machine() == "x86_64"


def run(folder: Path, job: str, seconds: float) -> tuple[int, str]:
    """Boot, have a shell do the job among the host's files, and return its status and what it printed."""
    script, log, before = folder / "job", folder / "console", folder / "processor_state.so"
    script.write_text(job)
    subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", before, _HERE / "processor_state.c"], check=True)
    command = [
        str(_LINUX), "mem=512M", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "quiet", "con=null", "con0=null,fd:1",
        f"uml_dir={folder}/", f"init={_HERE / 'user_mode_init'}", f"modules={_MODULES}", f"job={script}",
    ]  # fmt: skip
    with log.open("wb") as console:
        # Each of its processes is one of the host's, too: all end with it.
        linux = subprocess.Popen(
            command,
            env=os.environ | {"LD_PRELOAD": str(before)},
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            start_new_session=True,
        )
        try:
            linux.wait(seconds)
        finally:
            if linux.poll() is None:
                os.killpg(linux.pid, signal.SIGKILL)
                linux.wait()
    printed = log.read_text(errors="replace").replace("\r", "")
    found = re.search(r"^status (\d+)$", printed, re.MULTILINE)
    assert found is not None, printed
    return int(found[1]), printed
