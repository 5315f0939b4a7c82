"""``kernel inspect``, as a user types it; without an interface (see tests/plugins/dissectors/test_live.py)."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from struct import pack

import pytest

from kernel import hookimpl
from kernel.cli import main as cli
from kernel.contracts.kinds import DissectorKind
from kernel.inspection import printing
from kernel.plugins import Origin, PluginRegistry
from tests.captures import pcap
from tests.plugins.dissectors.test_backend import SAID
from tests.seeds import many

Command = Callable[..., tuple[int, str, str]]
CLIENT, SERVER = bytes((192, 0, 2, 1)), bytes((192, 0, 2, 2))
PORTS = (40_000, 7000)

pytestmark = pytest.mark.peer("scapy")


@pytest.fixture
def kernel(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run the command in this process; give exit status, output and errors."""

    def run(*arguments: object) -> tuple[int, str, str]:
        status = cli.run(list(map(str, arguments)))
        return (status, *capsys.readouterr())

    return run


def tcp(sender: int, number: int, acknowledged: int, flags: int, data: bytes = b"") -> bytes:
    source, destination = PORTS if sender == 0 else PORTS[::-1]
    return pack(">HHIIBBHHH", source, destination, number, acknowledged, 5 << 4, flags, 65_535, 0, 0) + data


def conversation(missing: int | None = None) -> bytes:
    """What a client and a server say in the backend protocol, ten milliseconds apart; one piece may be missing."""
    numbers = [1000, 5000]
    packets = [(0, tcp(0, 999, 0, 0x02)), (1, tcp(1, 4999, 1000, 0x12)), (0, tcp(0, 1000, 5000, 0x10))]
    for at, (sender, data) in enumerate(SAID):
        if at != missing:
            packets.append((sender, tcp(sender, numbers[sender], numbers[1 - sender], 0x18, data)))
        numbers[sender] += len(data)
    both = ((CLIENT, SERVER), (SERVER, CLIENT))
    return pcap((at / 100, 6, *both[sender], packet) for at, (sender, packet) in enumerate(packets))


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    path = tmp_path / "backend.pcap"
    path.write_bytes(conversation())
    return path


def test_lines_and_a_table(kernel: Command, capture: Path) -> None:
    status, output, errors = kernel("inspect", capture)
    assert (status, errors) == (0, "")
    lines = output.splitlines()
    assert lines[2] == "   0.050000  backend-1  192.0.2.1:40000 > 192.0.2.2:7000  WANT_CONFIRM"
    assert lines[3] == "   0.050000  backend-1  192.0.2.1:40000 > 192.0.2.2:7000  messages  count=2 bytes=6"
    assert [
        line.split() for line in lines if line.startswith(("session", "rtt_ms", "messages_out", "bytes_out"))
    ] == [
        ["session", "backend-1"],
        ["messages_out", "4"],
        ["bytes_out", "311"],
        ["rtt_ms", "20.0"],
    ]


def test_only_the_tables(kernel: Command, capture: Path) -> None:
    output = kernel("inspect", capture, "--summary")[1]
    assert " > " not in output
    assert "messages_out" in output


def test_json_is_one_object_a_line(kernel: Command, capture: Path) -> None:
    lines = [json.loads(line) for line in kernel("inspect", capture, "--json")[1].splitlines()]
    assert lines[3] == {
        "time": 0.05,
        "protocol": "backend",
        "session": "backend-1",
        "from": "192.0.2.1:40000",
        "to": "192.0.2.2:7000",
        "what": "messages",
        "facts": {"count": 2, "bytes": 6},
    }
    assert [line["summary"] for line in lines if "summary" in line] == ["backend"]
    assert lines[-1]["missing_bytes"] == 0


def test_what_was_not_captured_is_told(kernel: Command, tmp_path: Path) -> None:
    path = tmp_path / "holes.pcap"
    path.write_bytes(conversation(missing=2))
    lines = [json.loads(line) for line in kernel("inspect", path, "--json")[1].splitlines()]
    assert "bytes missing" in [line.get("what") for line in lines]
    assert lines[-1]["missing_bytes"] == len(SAID[2][1])


@pytest.mark.parametrize(
    "arguments", [["--protocol", "amqp091"], ["--port", "1"], ["--as", "7000=zmtp", "--protocol", "backend"]]
)
def test_what_is_not_wanted_is_not_shown(kernel: Command, capture: Path, arguments: list[str]) -> None:
    status, output, errors = kernel("inspect", capture, *arguments)
    assert (status, output) == (0, "")
    assert (
        errors
        == "kernel: no dissector recognized a conversation; name the protocol of a port with --as PORT=NAME\n"
    )


def test_of_many_sessions_each_is_a_row(kernel: Command) -> None:
    rows = [{"session": f"x-{n}", "count": n, "nothing": 0} for n in range(printing.SIDE_BY_SIDE + 1)]
    columns, shown = printing.table(rows)
    assert columns == ["session", "count"]
    assert shown[-1] == {"session": "x-5", "count": 5}
    columns, shown = printing.table(rows[:3])
    assert (columns, shown) == (
        ["session", "x-0", "x-1", "x-2"],
        [{"session": "count", "x-0": 0, "x-1": 1, "x-2": 2}],
    )


def test_what_comes_from_the_network_does_not_reach_the_terminal_as_it_is() -> None:
    assert printing.printable("\x1b[2J\x07 fine \u202e\n") == "\\x1b[2J\\x07 fine \\u202e "
    _, shown = printing.table([{"session": "a", "text": "\x1b]0;title\x07"}])
    assert shown[0]["a"] == "\\x1b]0;title\\x07"


def test_any_value_can_be_shown() -> None:
    deep: list[object] = []
    for _ in range(500):
        deep = [deep]
    odd = {"bytes": b"\x01", 7: float("nan"), b"k": None, "deep": deep}
    shown = printing.plain(odd)
    assert json.loads(json.dumps(shown, allow_nan=False)) == shown
    assert (shown["bytes"], shown["7"], shown["6b"]) == ("01", "nan", None)


WRONG = {
    "no file and no interface": ([], "give either FILE or --live INTERFACE", cli.USAGE),
    "both": (["x.pcap", "--live", "lo"], "give either FILE or --live INTERFACE", cli.USAGE),
    "no such file": (["nowhere.pcap"], "nowhere.pcap cannot be read: No such file or directory", cli.FAILED),
    "no such protocol": (
        ["x", "--protocol", "amqp"],
        "there is no dissector 'amqp'; did you mean 'amqp091'?",
        1,
    ),
    "no port": (["x", "--as", "backend"], "'backend' must have the form PORT=NAME", cli.USAGE),
    "no such protocol there": (["x", "--as", "7=tcp"], "there is no dissector 'tcp'", cli.FAILED),
    "no such interface": (
        ["--live", "nowhere0"],
        "there is no interface 'nowhere0'; there are: lo",
        cli.FAILED,
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_one_sentence(kernel: Command, name: str) -> None:
    arguments, sentence, status = WRONG[name]
    found, output, errors = kernel("inspect", *arguments)
    assert (found, output) == (status, "")
    assert sentence in errors
    assert "Traceback" not in errors


class Weather:
    """A stranger's plugin: the same bytes, another dissector."""

    @hookimpl
    def register_dissectors(self) -> list[DissectorKind]:
        from plugins.dissectors.backend.dissector import BackendDissector

        return [
            DissectorKind(
                name="weather", summary="it rains", ports=frozenset({7000}), create=BackendDissector
            )
        ]


def test_a_plugins_dissector_is_used_as_ours_are(
    kernel: Command, capture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = PluginRegistry.load()
    registry.add(Weather(), Origin("weather", "forecast", "1.0"))
    monkeypatch.setattr(PluginRegistry, "load", lambda: registry)
    assert "weather-1" in kernel("inspect", capture, "--protocol", "weather")[1]
    assert "backend-1" in kernel("inspect", capture)[1]  # what is recognised goes before what a port says
    assert "weather-1" in kernel("inspect", capture, "--as", "7000=weather")[1]


@pytest.mark.parametrize("seed", many(0, 20))
def test_any_damage_is_shown_without_a_traceback(kernel: Command, capture: Path, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(10):
        damaged = bytearray(conversation())
        for _ in range(chance.choice((1, 5, 50))):
            damaged[chance.randrange(24, len(damaged))] = chance.randrange(256)
        capture.write_bytes(damaged[: chance.choice((len(damaged), chance.randrange(24, len(damaged))))])
        status, output, errors = kernel("inspect", capture, *chance.choice(((), ("--as", "7000=zmtp"))))
        assert status == 0
        assert "dissector failed" not in output
        assert "Traceback" not in errors


def test_a_damaged_file_is_shown_as_far_as_it_goes(kernel: Command, capture: Path) -> None:
    capture.write_bytes(capture.read_bytes()[:-5])
    status, output, errors = kernel("inspect", capture)
    assert (status, "messages_out" in output) == (0, True)
    assert errors.startswith(f"kernel: {capture} ends within a packet")


def test_without_scapy_it_says_what_to_install(
    kernel: Command, capture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    status, output, errors = kernel("inspect", capture)
    assert (status, output) == (cli.FAILED, "")
    assert errors == "kernel: kernel inspect needs scapy: pip install 'messaging-kernel[inspect]'\n"


def test_scapy_is_loaded_for_captures_only() -> None:
    program = (
        "import sys, kernel.cli.main as m, kernel.cli.inspect, kernel.inspection.captures\n"
        "from kernel.plugins import PluginRegistry\n"
        "m.run(['inspect', '--help']); m.run(['plugins', 'pgm']); PluginRegistry.load()\n"
        "print('scapy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
