"""Linux, and its SCTP, in QEMU without KVM or root: UDP on the loopback interface leads to it (RFC 6951)."""

from __future__ import annotations

import contextlib
import platform
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

_HERE = Path(__file__).parent
_IMAGE = _HERE / "image"
_QEMU, _BUSYBOX = "qemu-system-x86_64", "/bin/busybox"
PORT, DIAL = 7777, 1000
"""Of the echo; and the protocol identifier that makes it dial."""
ADDRESS = bytes((10, 0, 2, 15))
OURS = bytes((10, 0, 2, 2))
_PATIENCE = 120.0


def is_there() -> bool:
    """Whether all is there that a guest is made of."""
    commands = all(map(shutil.which, (_QEMU, "cpio", "gcc")))
    return (
        commands
        and (_IMAGE / "vmlinuz").exists()
        and Path(_BUSYBOX).exists()
        and platform.machine() == "x86_64"
    )


def _build(folder: Path) -> Path:
    """Return the guest's first file system: a shell, modules and the echo."""
    root = folder / "root"
    for each in ("bin", "proc", "dev", "sys"):
        (root / each).mkdir(parents=True)
    shutil.copy(_BUSYBOX, root / "bin" / "busybox")
    shutil.copytree(_IMAGE / "modules", root / "modules")
    shutil.copy(_HERE / "init", root / "init")
    (root / "init").chmod(0o755)
    subprocess.run(["gcc", "-static", "-O1", "-o", root / "echo", _HERE / "echo.c"], check=True)
    names = "\n".join(str(each.relative_to(root)) for each in sorted(root.rglob("*")))
    archive = subprocess.run(
        ["cpio", "-o", "-H", "newc", "--quiet"],
        cwd=root,
        input=names.encode(),
        check=True,
        stdout=subprocess.PIPE,
    )
    made = folder / "initrd"
    made.write_bytes(archive.stdout)
    return made


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def guest(folder: Path, encap: int) -> Iterator[int]:
    """Boot; give the UDP port that leads to the guest, whose own packets go to ``encap``."""
    port, log = _free_port(), folder / "console"
    command = [
        _QEMU, "-M", "q35", "-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", "256", "-nographic", "-no-reboot",
        "-nic", "none", "-kernel", str(_IMAGE / "vmlinuz"), "-initrd", str(_build(folder)),
        "-append", f"console=ttyS0 quiet panic=-1 encap={encap}",
        "-netdev", f"user,id=n0,hostfwd=udp:127.0.0.1:{port}-10.0.2.15:9899", "-device", "virtio-net-pci,netdev=n0",
    ]  # fmt: skip
    with log.open("wb") as console:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=console, stderr=console)
    try:
        deadline = time.monotonic() + _PATIENCE
        while b"listening" not in log.read_bytes():
            assert process.poll() is None, log.read_text(errors="replace")
            assert time.monotonic() < deadline, log.read_text(errors="replace")
            time.sleep(0.05)
        yield port
    finally:
        process.kill()
        process.wait()
