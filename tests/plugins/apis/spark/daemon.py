"""A process of Spark's that others connect to: a master, a worker, a server of Spark Connect."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path

from plugins.apis.spark.java import java_home
from tests.object_store import CREDENTIALS

TIMEOUT = 400.0


class Daemon:
    """A master, a worker or a server.  ``told``: what it writes when it has started."""

    def __init__(self, told: str, *arguments: str, folder: Path, memory: str = "256m") -> None:
        import pyspark

        home = Path(pyspark.__file__).parent
        env = {
            **os.environ,
            **CREDENTIALS,
            "JAVA_HOME": str(java_home()),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_WORKER_DIR": str(folder),
            "SPARK_DAEMON_MEMORY": memory,
        }
        command = [str(home / "bin" / "spark-class"), *arguments]
        self.process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
        self._said = threading.Event()
        self._lines: deque[str] = deque(maxlen=100)
        self._told = re.compile(told)
        self.match: re.Match[str] | None = None
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._lines.append(line)
            self.match = self.match or self._told.search(line)
            if self.match:
                self._said.set()
        # It has ended.  Who waits need not wait for a word that does not come.
        self._said.set()

    def wait(self) -> re.Match[str]:
        assert self._said.wait(TIMEOUT), "it did not say that it has started"
        assert self.match is not None, "".join(self._lines)
        return self.match

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)
        self._listener.join()
        assert self.process.stderr is not None
        self.process.stderr.close()
