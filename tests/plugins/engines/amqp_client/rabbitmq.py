"""A RabbitMQ of the tests' own: its files in a temporary folder, its ports free ones, gone at the end."""

from __future__ import annotations

import base64
import os
import re
import signal
import subprocess
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from time import monotonic
from typing import IO

from tests.ports import free_port

# Debian's own rabbitmq-server changes to the user and the folder of the system's service.  Another version can be
# compared with: these name its scripts.
SERVER = os.environ.get("KERNEL_RABBITMQ_SERVER", "/usr/lib/rabbitmq/bin/rabbitmq-server")
CONTROL = os.environ.get("KERNEL_RABBITMQ_CONTROL", "/usr/lib/rabbitmq/bin/rabbitmqctl")


def _version() -> tuple[int, ...]:
    """What the name of its first plugin says; nothing if there is no RabbitMQ."""
    for plugin in (Path(CONTROL).resolve().parents[1] / "plugins").glob("rabbit-*"):
        return tuple(map(int, re.findall(r"\d+", plugin.name)))
    return ()


VERSION = _version()
"""As ``(3, 10, 8)``."""
TIMEOUT = 240.0
"""Erlang and Elixir take their time to start where others do as well."""
_LISTENERS = {
    "rabbitmq_mqtt": ("mqtt.listeners.tcp.1 = 127.0.0.1:{mqtt}",),
    "rabbitmq_stomp": ("stomp.listeners.tcp.1 = 127.0.0.1:{stomp}",),
}
"""Settings of plugins that have listeners of their own."""
_SCRIPT = """
set -ae
. "${0%/*}"/rabbitmq-env
_rmq_env_set_erl_libs
exec erl +B -boot "$CLEAN_BOOT_FILE" -noshell -hidden $RABBITMQ_CTL_ERL_ARGS -pa "$1" "$1"/*/ebin -eval "$2" -extra rabbitmqctl
"""
"""What the script ``rabbitmqctl`` does, but for the program that it runs: the argument behind the folder of the modules.

They are in the folder itself (3.10), or in one for each application (4.0).
"""
_PROGRAM = """
logger:set_primary_config(level, none),
{ok, _} = application:ensure_all_started(rabbitmqctl),
Answer = fun(Status, Said) -> io:format("~s ~s~n", [Status, base64:encode(unicode:characters_to_binary(io_lib:format("~0tp", [Said])))]) end,
Run = fun(Arguments) ->
    try 'Elixir.RabbitMQCtl':exec_command(Arguments, fun(Output, _, _) -> Output end) of
        ok -> Answer("ok", "");
        {Good, _} when Good =:= ok; Good =:= stream -> Answer("ok", "");
        Said -> Answer("error", Said)
    catch
        Class:Reason -> Answer("error", {Class, Reason})
    end
end,
Read = fun Read() ->
    case io:get_line("") of
        eof -> halt(0);
        Line -> Run([base64:decode(Word) || Word <- string:split(string:trim(Line), ",", all)]), Read()
    end
end,
Read().
"""
"""Runs the commands of its lines, words in base64 between commas, with the functions of ``rabbitmqctl``; answers each with a line."""
_LARGE = f"max_message_size = {128 << 20}"
"""What 3.10 takes without being told; 4.0 takes 16 MiB."""


class ControlError(Exception):
    """``rabbitmqctl`` has failed."""


class RabbitMq:
    """One node."""

    def __init__(self, folder: Path, plugins: Sequence[str] = (), settings: Iterable[str] = ()) -> None:
        """``settings``: lines of its configuration file, besides those for the plugins' listeners."""
        self._folder = folder
        self.port, distribution, self._epmd_port = (free_port() for _ in range(3))
        self.mqtt_port, self.stomp_port = free_port(), free_port()
        ports = {"mqtt": self.mqtt_port, "stomp": self.stomp_port}
        listeners = [line.format(**ports) for plugin in plugins for line in _LISTENERS.get(plugin, ())]
        self._environment = {
            **os.environ,
            "HOME": str(folder),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_NODENAME": f"kernel-{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(distribution),
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            # Of ``rabbitmqctl``.  Erlang's schedulers spin while they wait, and so keep each other from the cores
            # of a busy machine: half a minute for a command of one second.
            "RABBITMQ_CTL_ERL_ARGS": "+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none",
        }
        (folder / "plugins").write_text(f"[{','.join(plugins)}].")
        (folder / "rabbitmq.conf").write_text(
            "".join(f"{line}\n" for line in (_LARGE, *listeners, *settings))
        )
        # Opened here, and one for all starts: who looks for leaks in between finds nothing new.
        reading, self._said = os.pipe()
        self._says = os.fdopen(reading)
        self._commands_end, commands = os.pipe()
        answers, self._answers_end = os.pipe()
        self._commands, self._answers = os.fdopen(commands, "w"), os.fdopen(answers)
        self._epmd = subprocess.Popen(["epmd", "-port", str(self._epmd_port), "-address", "127.0.0.1"])
        self._server: subprocess.Popen[bytes] | None = None
        self._controller: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start, and wait until it says that it has."""
        with (self._folder / "errors").open("a") as errors:
            self._server = subprocess.Popen(
                [SERVER],
                env=self._environment,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=errors,
                start_new_session=True,
            )
        _read_until(self._says, lambda line: "completed with" in line)

    def control(self, *arguments: str) -> None:
        """Do what ``rabbitmqctl`` does.

        Raises:
            ControlError: it has failed.
        """
        if self._controller is None:
            self._controller = self._start_controller()
        self._commands.write(",".join(base64.b64encode(word.encode()).decode() for word in arguments) + "\n")
        self._commands.flush()
        for line in self._answers:
            status, _, said = line.rstrip("\n").partition(" ")
            if status in ("ok", "error"):  # others are what libraries print
                break
        else:
            raise ControlError(f"rabbitmqctl {' '.join(arguments)}: it has ended")
        if status == "error":
            raise ControlError(f"rabbitmqctl {' '.join(arguments)}: {base64.b64decode(said).decode()}")

    def _start_controller(self) -> subprocess.Popen[bytes]:
        """Start what runs all commands: a process for each takes a second of a processor, most of it to unpack itself."""
        modules = self._folder / "rabbitmqctl"
        scripts = Path(CONTROL).resolve().parent
        with zipfile.ZipFile(scripts.parent / "escript" / "rabbitmqctl") as archive:
            archive.extractall(modules)
        try:
            return subprocess.Popen(
                ["sh", "-c", _SCRIPT, str(scripts / "rabbitmqctl"), str(modules), " ".join(_PROGRAM.split())],
                env=self._environment,
                cwd=self._folder,
                stdin=self._commands_end,
                stdout=self._answers_end,
            )
        finally:
            # Its ends are its own from now on, so that the answers end with it.
            os.close(self._commands_end)
            os.close(self._answers_end)

    def stop(self) -> None:
        """Kill it, as a power cut would; the shell that started it ends by itself when it is gone."""
        if self._server is None:
            return
        pid = self._folder / "pid"
        if pid.exists():
            os.kill(int(pid.read_text()), signal.SIGKILL)
            pid.unlink()
        else:  # it had not come so far
            os.killpg(self._server.pid, signal.SIGKILL)
        self._server.wait(TIMEOUT)
        self._server = None

    def close(self) -> None:
        """Stop it, and what it needed."""
        self.stop()
        self._commands.close()
        if self._controller is not None:
            self._controller.wait(TIMEOUT)  # it ends when nobody writes to it
        else:
            os.close(self._commands_end)
            os.close(self._answers_end)
        self._answers.close()
        self._epmd.kill()
        self._epmd.wait()
        self._says.close()
        os.close(self._said)


def _read_until(stream: IO[str], there: Callable[[str], bool]) -> None:
    said: list[str] = []
    deadline = monotonic() + TIMEOUT
    while monotonic() < deadline:
        line = stream.readline()
        said.append(line)
        if there(line):
            return
        assert line, "RabbitMQ did not start: " + "".join(said)
    raise AssertionError("RabbitMQ did not start in time: " + "".join(said))
