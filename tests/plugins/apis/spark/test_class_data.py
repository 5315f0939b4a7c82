"""The archive of classes that lets a JVM start sooner: whose it is, and what happens when it is not fit for use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from plugins.apis.spark.class_data import archive_of, java_options, make_archive
from plugins.apis.spark.errors import NoArchive
from plugins.apis.spark.java import java_home
from plugins.apis.spark.spark_session import settings

SESSION = """
from plugins.apis.spark import session
spark = session("damaged", master="local[1]", configuration={"spark.driver.memory": "512m"})
print("sum", spark.range(10).selectExpr("sum(id)").collect()[0][0])
spark.stop()
"""


def _environ(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_an_archive_belongs_to_one_java(tmp_path: Path) -> None:
    environ = _environ(tmp_path)
    homes = [tmp_path / "17", tmp_path / "21"]
    for home in homes:
        home.mkdir()
    before = [archive_of(home, environ) for home in homes]
    assert before[0] != before[1]
    (homes[0] / "release").write_text('JAVA_VERSION="17.0.16"')
    assert archive_of(homes[0], environ) not in before, "an update of that Java has its own"


def test_a_jvm_is_told_of_an_archive_that_is_there(tmp_path: Path) -> None:
    environ = _environ(tmp_path)
    assert java_options(tmp_path, environ) == ""
    archive = archive_of(tmp_path, environ)
    archive.parent.mkdir(parents=True)
    archive.touch()
    told = settings("local[2]", tmp_path, environ)["spark.driver.defaultJavaOptions"]
    assert f"-XX:SharedArchiveFile={archive} -Xshare:auto" in told
    assert "spark.driver.defaultJavaOptions" not in settings("spark://host:7077", tmp_path, environ)


@pytest.mark.parametrize("name", ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"])
def test_a_collector_that_somebody_has_chosen_is_the_only_one(name: str) -> None:
    assert "UseParallelGC" in settings("local[2]", environ={})["spark.driver.extraJavaOptions"]
    assert "UseParallelGC" in settings("local[2]", environ={name: "-Xmx1g"})["spark.driver.extraJavaOptions"]
    told = settings("local[2]", environ={name: "-Xmx1g -XX:+UseG1GC"})["spark.driver.extraJavaOptions"]
    assert "GC" not in told


@pytest.mark.slow
def test_an_archive_that_is_damaged_is_no_reason_not_to_start(tmp_path: Path) -> None:
    environ = _environ(tmp_path)
    archive = archive_of(java_home(environ), environ)
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.write_bytes(b"no archive" * 10_000)
    command = [sys.executable, "-c", SESSION]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=280, check=True)
    assert done.stdout == "sum 45\n"
    assert "shared" not in done.stderr.lower()


@pytest.mark.slow
def test_a_java_that_makes_none_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        '#!/bin/sh\n[ "$1" = -version ] && { echo \'openjdk version "17.0.1"\' >&2; exit; }\nexit 1\n'
    )
    java.chmod(0o755)
    environ = _environ(tmp_path)
    with pytest.raises(NoArchive, match=f"{tmp_path}/java has created no archive"):
        make_archive(tmp_path / "java", environ)
    assert list((tmp_path / "cache").rglob("*.jsa*")) == []
