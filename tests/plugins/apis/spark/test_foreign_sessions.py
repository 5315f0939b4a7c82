"""What ``register`` and ``session`` ask of the Python and the pyspark that they find, without Spark."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from plugins.apis.spark import register, session
from plugins.apis.spark.errors import NoSpark


class ForeignSession:
    """A session that somebody else has made: notes in which Python the registered source will run."""

    def __init__(self, master: str) -> None:
        self.sparkContext = SimpleNamespace(master=master, pythonExec="python3")
        self.conf = {"spark.sql.python.filterPushdown.enabled": "false"}
        self.dataSource = SimpleNamespace(register=self._register)
        self.runs_in: list[str] = []

    def _register(self, source: Any) -> None:
        self.runs_in.append(self.sparkContext.pythonExec)


@pytest.mark.parametrize(
    "master,environ,python",
    [
        ("local[2]", {}, sys.executable),
        ("local[2]", {"PYSPARK_PYTHON": "/elsewhere/python"}, "python3"),
        ("spark://host:7077", {}, "python3"),
    ],
)
def test_workers_on_this_computer_run_the_python_of_the_program(
    master: str, environ: dict[str, str], python: str
) -> None:
    spark = ForeignSession(master)
    register(spark, environ=environ)
    assert spark.runs_in == [python]
    assert spark.sparkContext.pythonExec == "python3", "what the program registers itself is not changed"


@pytest.mark.parametrize("version", ["3.5.1", "4.0.1", "4.1.0.dev2"])
def test_a_pyspark_that_is_too_old_is_named(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.version.__version__", version)
    for call in (session, lambda: register(ForeignSession("local"))):
        with pytest.raises(
            NoSpark, match=rf"pyspark 4.2 or newer, and this Python has {version}: pip install"
        ):
            call()
