"""Fresh virtual environments, as users have them.  No package index is needed: the packages are those of this environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
OURS = "messaging-kernel"
FOLDERS = ("kernel", "plugins")
"""The packages of the project."""
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

    def install(self, *wheels: Path) -> None:
        """Install wheels, without what they depend on."""
        into = ("--python", str(self.scripts / "python"))
        run_python(*PIP, *into, "install", *OFFLINE, *map(str, wheels), cwd=self.folder)

    def requirements(self, distribution: str) -> list[str]:
        """Return what an installed distribution asks for, with and without extras."""
        return list(self._installed(distribution).requires or ())

    def extras(self, distribution: str) -> set[str]:
        """Return the names of the extras of an installed distribution."""
        return set(self._installed(distribution).metadata.get_all("Provides-Extra") or ())

    def _installed(self, distribution: str) -> metadata.Distribution:
        (information,) = self.packages.glob(f"{distribution.replace('-', '_')}-*.dist-info")
        return metadata.Distribution.at(information)


def run_python(*arguments: str, cwd: Path) -> None:
    """Run the Python of this environment, which has pip and what builds distributions."""
    done = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def build_release(folder: Path) -> tuple[Path, Path]:
    """Return the source distribution of the project, and the wheel made from it alone; both are in ``folder``.

    The source distribution is made from a copy, because building leaves files behind.
    """
    copy = folder / "copy"
    for name in FOLDERS:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, copy / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    build = "from setuptools import build_meta; import sys; build_meta.build_sdist(sys.argv[1])"
    run_python("-c", build, str(folder), cwd=copy)
    (source,) = folder.glob("*.tar.gz")
    run_python(*PIP, "wheel", *OFFLINE, "--wheel-dir", str(folder), str(source), cwd=folder)
    (wheel,) = folder.glob("*.whl")
    return source, wheel


def link_distributions(
    requirements: Iterable[str], extra: str, environment: Environment, folder: Path | None = None
) -> None:
    """Link what the requirements with that extra ask for, and what that asks for in its turn.

    ``extra`` is empty for the requirements without one.  The links are made in ``folder``, or else in the environment.
    It has the project already, but not what an extra of the project asks for.
    """
    folder = folder or environment.packages
    waiting = [(Requirement(line), extra) for line in requirements]
    seen = set()
    while waiting:
        requirement, asking = waiting.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": asking}):
            continue
        name = canonicalize_name(requirement.name)
        if name == OURS:
            asked: Iterable[str] = environment.requirements(OURS)
        else:
            found = metadata.distribution(name)
            assert requirement.specifier.contains(found.version), f"{requirement}: here is {found.version}"
            asked = found.requires or ()
            _link(found, folder)
        for each in ("", *requirement.extras):
            if (name, each) not in seen:
                seen.add((name, each))
                waiting += [(Requirement(line), each) for line in asked]


def _link(found: metadata.Distribution, folder: Path) -> None:
    for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
        if not (folder / top).is_symlink():
            (folder / top).symlink_to(Path(str(found.locate_file(top))))
