"""A real systemd runs the service that the documentation shows: a manager for one user, in a mount namespace of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SYSTEMD = "/lib/systemd/systemd"
SECONDS = 60.0

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.skipif(
        os.geteuid() != 0 or not os.path.exists(SYSTEMD) or shutil.which("unshare") is None,
        reason="takes root, systemd and unshare",
    ),
]

# Control groups of its own: a manager moves all processes that it finds in its root into a group.  "/run" is that of
# a machine on which a manager of the whole machine runs; ``systemd --user`` looks for the folder.
NAMESPACE = """
set -e
cd /sys/fs/cgroup
if [ -e cgroup.controllers ]; then export mounted="cgroup2"; else export mounted="cgroup -o none,name=systemd"; cd systemd; fi
mkdir "$GROUP"
echo $$ > "$GROUP/cgroup.procs"
exec unshare --cgroup sh -e -c '
    cd / && folder="$1" && shift
    mount -t tmpfs none /sys/fs/cgroup && mkdir -p "$folder" && mount -t $mounted none "$folder"
    mount -t tmpfs none /run && mkdir -p /run/systemd/system
    exec "$@"
' sh "$PWD" "$@"
"""


class Manager:
    """A manager of services, and its ``systemctl``."""

    def __init__(self, folder: Path) -> None:
        self.units = folder / "config" / "systemd" / "user"
        self.units.mkdir(parents=True)
        runtime = folder / "runtime"
        runtime.mkdir(mode=0o700)
        self._group = f"kernel-test-{os.getpid()}"
        self._environment = {
            **os.environ,
            "GROUP": self._group,
            "XDG_RUNTIME_DIR": str(runtime),
            "XDG_CONFIG_HOME": str(folder / "config"),
        }
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    "unshare",
                    "--mount",
                    "sh",
                    "-c",
                    NAMESPACE,
                    "sh",
                    SYSTEMD,
                    "--user",
                    "--log-target=console",
                ],
                env=self._environment,
                stdout=log,
                stderr=log,
            )
        self._namespace = f"/proc/{self.process.pid}/ns/mnt"

    def __call__(self, *arguments: str) -> str:
        """Return what systemctl prints."""
        return subprocess.run(
            ["nsenter", f"--mount={self._namespace}", "systemctl", "--user", *arguments],
            env=self._environment, capture_output=True, text=True, check=True, timeout=SECONDS,
        ).stdout  # fmt: skip

    def property(self, name: str) -> str:
        return str(self("show", "--value", "-p", name, "messaging.service")).strip()

    def until(self, happened: Callable[[], bool]) -> None:
        """Nothing is told to who asks."""
        limit = time.monotonic() + SECONDS
        while not happened():
            assert time.monotonic() < limit, self._log.read_text()
            time.sleep(0.02)

    def is_up(self) -> bool:
        try:
            return bool(self("show", "-p", "Version"))
        except subprocess.CalledProcessError:
            if self.process.poll() is None:
                return False
            pytest.skip(f"systemd does not run here: {self._log.read_text()}")

    def close(self) -> None:
        if self.process.poll() is None:
            self("exit")
        self.process.wait(SECONDS)
        for group in Path("/sys/fs/cgroup").glob(f"**/{self._group}"):
            inner = [path for path in group.rglob("*") if path.is_dir()]
            for path in (*sorted(inner, reverse=True), group):
                path.rmdir()


@pytest.fixture
def systemctl(tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(tmp_path)
    try:
        manager.until(manager.is_up)
        yield manager
        manager.close()
    finally:
        manager.process.kill()


def unit(file: Path, control: Path) -> str:
    """Return the unit of the documentation, for this place and this user."""
    text = (ROOT / "docs" / "operating.md").read_text()
    (found,) = re.findall(r"```ini\n(\[Unit\].*?)```", text, re.DOTALL)
    shown = str(found)
    changes = {
        "/opt/messaging/bin/kernel": f"{sys.executable} -m kernel",
        "/etc/messaging/broker.toml": str(file),
        "/run/messaging/control.sock": str(control),
        # Only a manager of the whole machine can do these.
        "User=messaging\n": f"WorkingDirectory={ROOT}\n",
        "NoNewPrivileges=yes\nProtectSystem=strict\n": "",
        # Waits that a test can await.
        "WatchdogSec=30": "WatchdogSec=1\nTimeoutAbortSec=1\nRestartSec=0",
    }
    for old, new in changes.items():
        assert old in shown, old
        shown = shown.replace(old, new)
    return shown


def test_a_service_starts_reloads_is_watched_and_stops(systemctl: Manager, tmp_path: Path) -> None:
    file, control = tmp_path / "broker.toml", tmp_path / "control.sock"
    broker = '[engines.broker]\nkind = "amqp"\naddress = "127.0.0.1:0"\n'
    file.write_text(broker)
    (systemctl.units / "messaging.service").write_text(unit(file, control))
    systemctl("daemon-reload")
    # It returns when the service has said that it is ready: the broker listens.
    systemctl("start", "messaging.service")
    assert systemctl.property("ActiveState") == "active"
    assert systemctl.property("StatusText") == f"{file}: all engines are up"
    assert control.is_socket()
    first = int(systemctl.property("MainPID"))

    file.write_text(broker + '[engines.hub]\nkind = "hub"\n')
    systemctl("reload", "messaging.service")
    systemctl.until(lambda: "read again" in systemctl.property("StatusText"))
    systemctl.until(lambda: systemctl.property("ActiveState") == "active")
    answer = subprocess.run(
        [sys.executable, "-m", "kernel", "status", "--control", str(control), "--json"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert '"hub"' in answer.stdout
    assert int(systemctl.property("MainPID")) == first

    # A process that hangs is ended, and started again.
    os.kill(first, 19)  # SIGSTOP
    systemctl.until(lambda: systemctl.property("NRestarts") == "1")
    systemctl.until(lambda: systemctl.property("ActiveState") == "active")
    assert int(systemctl.property("MainPID")) != first

    systemctl("stop", "messaging.service")
    assert systemctl.property("ActiveState") == "inactive"
    assert systemctl.property("Result") == "success"
    assert not control.exists()
