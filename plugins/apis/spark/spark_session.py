"""Creates a Spark session for the data source ``kernel``: Java, Python, little output, fast micro-batches.

The data source does not need these settings.  Any session can use it after ``register(spark)``; if the wheel
is installed, Spark finds ``pyspark_messaging_kernel`` by itself.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from plugins.apis.spark.class_data import java_options
from plugins.apis.spark.java import java_home
from plugins.apis.spark.versions import need_pyspark

_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_ANYWHERE = {
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # Off in Spark, where a reader with pushFilters is then refused; with it `where offset >= ...` skips
    # segments.
    _PUSHDOWN: "true",
    # Small Python tasks take 0.8 to 2.6 s a hundred over Unix sockets, 4 to 6 s over TCP.
    "spark.python.unix.domain.socket.enabled": "true",
}
_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.catalogImplementation": "in-memory",
    # A micro-batch writes its plan and its commit to the checkpoint: 81 ms with the default manager, 20 ms
    # with this one, which relies on rename being atomic.  It is in a local file system, and not in an object
    # store.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",  # no .crc beside each file
}

# Arrow checks bounds and reference counts before each access, which is a seventh of the JVM's work for a
# batch; and it checks for null once more after Spark did, which is an eighth.
_UNCHECKED = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"

_COLLECTOR = "-XX:+UseParallelGC"
"""Up to a tenth faster than the default collector; its longer pauses do not matter here."""
_JAVA_READS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
_CHOSEN = re.compile(r"-XX:\+Use\w+GC\b")


def session(
    name: str = "kernel",
    *,
    master: str = "local[*]",
    configuration: Mapping[str, str] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Any:
    """Return a ``SparkSession`` with the format ``kernel``; if a session is active, that one.

    ``configuration`` has settings of Spark; they override ours.  Raises ``NoJava`` if neither the machine nor
    a wheel has a Java (see ``java.py``), and ``NoSpark`` if pyspark is missing or too old.
    """
    need_pyspark()
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    builder = builder.appName(name).master(master)
    # With an active session its JVM is used, whatever Java that is: do not look for one.
    running = SparkSession.getActiveSession() is not None
    home = None if running else java_home(environ)
    for key, value in {**settings(master, home, environ), **(configuration or {})}.items():
        builder = builder.config(key, value)
    with _environment(master, home, environ):
        spark = builder.getOrCreate()
    register(spark)
    return spark


def register(spark: Any, *, environ: Mapping[str, str] = os.environ) -> None:
    """Register the format ``kernel`` with an existing session.

    On one computer the format then runs in this program's Python, unless ``PYSPARK_PYTHON`` names another
    one.
    """
    need_pyspark()
    from plugins.apis.spark.source import KernelDataSource, PushdownDataSource

    # Spark refuses a reader with ``pushFilters`` in a session without filter pushdown.
    pushed = spark.conf.get(_PUSHDOWN, "false") == "true"
    with _this_python(spark, environ):
        spark.dataSource.register(PushdownDataSource if pushed else KernelDataSource)


@contextmanager
def _this_python(spark: Any, environ: Mapping[str, str]) -> Iterator[None]:
    """Let what is registered meanwhile run in this Python, and not in the first ``python3`` on PATH.

    That one may have no kernel or no pyarrow: an environment need not be activated for its Python to run.  On
    a cluster nothing is changed, since the other computers may have no such file.
    """
    # A session of Spark Connect has no context: its server decides.
    context = getattr(spark, "sparkContext", None)
    if context is None or "PYSPARK_PYTHON" in environ or not context.master.startswith("local"):
        yield
        return
    # Spark stores the name with each function and source that is registered.  Those of the user's program
    # stay as they are.
    before, context.pythonExec = context.pythonExec, sys.executable
    try:
        yield
    finally:
        context.pythonExec = before


def settings(
    master: str, home: Path | None = None, environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the settings for a master.

    On a cluster there are fewer than on one machine: its operator decides.

    ``home`` is the JAVA_HOME of a JVM that will be started; then its archive of classes is used if it exists.
    """
    if not master.startswith("local"):
        return dict(_ANYWHERE)
    # ``local``, ``local[2]``, ``local[*]`` or ``local[2,3]`` (threads, and failures of a task).  Spark
    # divides shuffled rows into 200 partitions by default, far too many tasks for a few processors.
    threads = master.removeprefix("local").strip("[]").split(",")[0]
    count = int(threads) if threads.isdigit() else (os.cpu_count() or 1) if threads == "*" else 1
    return {
        **_ANYWHERE,
        **_LOCAL,
        "spark.sql.shuffle.partitions": str(count),
        "spark.driver.extraJavaOptions": f"{java_properties()} {_collector(environ)}".strip(),
        **({"spark.driver.defaultJavaOptions": java_options(home, environ)} if home else {}),
    }


def java_properties() -> str:
    """Return our options for a JVM that do not depend on its garbage collector and compiler."""
    quiet = Path(__file__).with_name("log4j2.properties").as_uri()
    return f"-Dlog4j2.configurationFile={quiet} {_UNCHECKED}"


def _collector(environ: Mapping[str, str]) -> str:
    """Return the option for the garbage collector; empty if the environment selects one.

    A JVM with options for two collectors does not start.
    """
    told = " ".join(environ.get(name, "") for name in _JAVA_READS)
    return "" if _CHOSEN.search(told) else _COLLECTOR


@contextmanager
def _environment(master: str, home: Path | None, environ: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for Spark's launcher and JVM while they start, and restore them afterwards.

    ``home`` is the JVM's JAVA_HOME; None: a JVM is running already, and nothing is set.  Python is set too:
    Spark would take the first ``python3`` on PATH, which may not have the kernel installed.
    """
    if home is None:
        yield
        return
    wanted = {
        "JAVA_HOME": str(home),
        "PYSPARK_PYTHON": environ.get("PYSPARK_PYTHON", sys.executable),
        "PYSPARK_DRIVER_PYTHON": environ.get("PYSPARK_DRIVER_PYTHON", sys.executable),
    }
    if master.startswith("local"):
        wanted["SPARK_LOCAL_IP"] = environ.get("SPARK_LOCAL_IP", "127.0.0.1")
    # The launcher and the JVM are child processes and inherit the environment.
    before = {key: os.environ.get(key) for key in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value
