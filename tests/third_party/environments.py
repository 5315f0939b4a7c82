"""Fresh virtual environments, as users have them.  No package index is needed: the packages are those of this environment."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

TIMEOUT = 250.0
PIP = ("-m", "pip", "--disable-pip-version-check", "--quiet")
OFFLINE = ("--no-deps", "--no-build-isolation", "--no-index")


class Environment:
    """A virtual environment in ``folder`` with nothing in it but Python."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        venv.create(folder, symlinks=True, with_pip=False)
        self.scripts = folder / "bin"
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.packages = folder / "lib" / version / "site-packages"

    def see_ours(self) -> None:
        """Have it see all packages of this environment, the project and pip among them."""
        ours = sysconfig.get_path("purelib")
        (self.packages / "ours.pth").write_text(f"import site; site.addsitedir({ours!r})\n")

    def variables(self, *paths: Path) -> dict[str, str]:
        """Return the variables of its processes; ``paths`` are more folders with packages."""
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))
        }
        return {**kept, "PYTHONPATH": os.pathsep.join(map(str, paths))} if paths else kept

    def command(
        self, name: str, *arguments: str, cwd: Path, paths: Iterable[Path] = (), status: int = 0
    ) -> str:
        """Run one of its programs; return what it printed."""
        done = subprocess.run(
            [str(self.scripts / name), *arguments],
            cwd=cwd,
            env=self.variables(*paths),
            text=True,
            timeout=TIMEOUT,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert done.returncode == status, done.stdout
        return done.stdout

    def install(self, wheel: Path) -> None:
        """Install a wheel, without what it depends on."""
        command = [
            sys.executable,
            *PIP,
            "--python",
            str(self.scripts / "python"),
            "install",
            *OFFLINE,
            str(wheel),
        ]
        subprocess.run(command, check=True, timeout=TIMEOUT)


def link_distributions(requirements: Iterable[str], extra: str, folder: Path) -> None:
    """Link into ``folder`` what the requirements with that extra ask for, and what that asks for in its turn.

    ``extra`` is empty for the requirements without one.
    """
    waiting = [(Requirement(line), extra) for line in requirements]
    seen = set()
    while waiting:
        requirement, asking = waiting.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": asking}):
            continue
        name = canonicalize_name(requirement.name)
        found = metadata.distribution(name)
        assert requirement.specifier.contains(found.version), f"{requirement}: here is {found.version}"
        for each in ("", *requirement.extras):
            if (name, each) not in seen:
                seen.add((name, each))
                waiting += [(Requirement(line), each) for line in found.requires or ()]
        for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            if not (folder / top).is_symlink():
                (folder / top).symlink_to(Path(str(found.locate_file(top))))
