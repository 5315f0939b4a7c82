"""Everyday life with mosquitto_pub and mosquitto_sub, as their manual pages show it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.interop.mqtt_brokers import MqttBroker

pytestmark = pytest.mark.peer("mosquitto-clients")

TIMEOUT = 60
Subscribe = Callable[..., subprocess.Popen[str]]


def login(broker: MqttBroker) -> list[str]:
    return ["-h", broker.host, "-p", str(broker.port), "-u", "guest", "-P", "guest"]


def publish(broker: MqttBroker, *arguments: str, text: str | None = None) -> None:
    subprocess.run(
        ["mosquitto_pub", *login(broker), *arguments],
        input=text,
        text=True,
        check=True,
        timeout=TIMEOUT,
        capture_output=True,
    )


@pytest.fixture
def subscribe(mqtt_broker: MqttBroker) -> Iterator[Subscribe]:
    """Start ``mosquitto_sub`` and wait until it has subscribed."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, address: list[str] | None = None) -> subprocess.Popen[str]:
        command = ["mosquitto_sub", *(login(mqtt_broker) if address is None else address), "-d", *arguments]
        program = subprocess.Popen(
            # Its output is for a terminal, line by line; -d says when it has subscribed.
            ["stdbuf", "-oL", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(program)
        assert program.stdout is not None
        said: list[str] = []
        while not (line := program.stdout.readline()).startswith("Subscribed"):
            said.append(line)
            assert line, "".join(said)
        return program

    yield start
    for program in started:
        program.kill()
        program.communicate()


def lines(program: subprocess.Popen[str]) -> list[str]:
    """Return what it prints until it ends by itself, but for what -d adds."""
    assert program.stdout is not None
    # Not ``communicate``: it does not know what ``readline`` has left.
    out = program.stdout.read()
    assert program.wait(TIMEOUT) == 0, out
    return [line for line in out.splitlines() if not line.startswith(("Client ", "Subscribed"))]


@pytest.mark.parametrize("version", ["311", "5"])
def test_each_qos(mqtt_broker: MqttBroker, subscribe: Subscribe, name: str, version: str) -> None:
    program = subscribe("-V", version, "-t", f"{name}/#", "-q", "2", "-C", "9", "-F", "%t %q %r %p")
    for qos in ("0", "1", "2"):
        publish(mqtt_broker, "-V", version, "-t", f"{name}/{qos}", "-q", qos, "-l", text="one\ntwo\nthree\n")
    wanted = [f"{name}/{qos} {qos} 0 {text}" for qos in (0, 1, 2) for text in ("one", "two", "three")]
    assert sorted(lines(program)) == sorted(wanted)


def test_a_url(mqtt_broker: MqttBroker, subscribe: Subscribe, name: str) -> None:
    url = f"mqtt://guest:guest@{mqtt_broker.host}:{mqtt_broker.port}/{name}"
    program = subscribe("-L", url, "-C", "1", address=[])
    subprocess.run(["mosquitto_pub", "-L", url, "-m", "hello"], check=True, timeout=TIMEOUT)
    assert lines(program) == ["hello"]


@pytest.mark.parametrize("version", ["311", "5"])
def test_a_session(mqtt_broker: MqttBroker, subscribe: Subscribe, name: str, version: str) -> None:
    session = ["-c", "-i", f"{name}-s", "-V", version, "-t", f"{name}/#", "-q", "1"]
    if version == "5":
        session += ["-x", "100"]
    subscribe(*session, "-E").communicate(timeout=TIMEOUT)
    publish(mqtt_broker, "-t", f"{name}/a", "-q", "1", "-l", text="one\ntwo\n")
    command = ["mosquitto_sub", *login(mqtt_broker), *session, "-C", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT)
    assert done.stdout == "one\ntwo\n"
    # Without -c the session ends.
    subscribe("-i", f"{name}-s", "-t", f"{name}/#", "-E").communicate(timeout=TIMEOUT)


def test_a_will(mqtt_broker: MqttBroker, subscribe: Subscribe, name: str) -> None:
    witness = subscribe("-t", f"{name}/will", "-C", "1", "-F", "%q %p")
    will = ["--will-topic", f"{name}/will", "--will-payload", "gone", "--will-qos", "1"]
    dying = subscribe("-t", f"{name}/x", *will)
    dying.kill()
    assert lines(witness) == ["0 gone"]


def test_a_retained_message(mqtt_broker: MqttBroker, subscribe: Subscribe, name: str) -> None:
    publish(mqtt_broker, "-t", f"{name}/r", "-r", "-m", "kept")
    assert lines(subscribe("-t", f"{name}/#", "-C", "1", "-F", "%r %p")) == ["1 kept"]
    publish(mqtt_broker, "-t", f"{name}/r", "-r", "-n")
    command = ["mosquitto_sub", *login(mqtt_broker), "-t", f"{name}/#", "--retained-only", "-W", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.stdout == ""


def test_properties_of_version_5(mqtt_broker: MqttBroker, subscribe: Subscribe, name: str) -> None:
    program = subscribe(
        *("-V", "5", "-t", name, "-C", "1", "-D", "subscribe", "subscription-identifier", "7"),
        *("-F", "%C %R %D %F %S %P %p"),
    )
    given = [
        *("content-type", "text/plain", "response-topic", "answers/to", "correlation-data", "c7"),
        *("payload-format-indicator", "1", "user-property", "first", "1", "user-property", "second", "2"),
    ]
    wanted: list[str] = []
    position = 0
    while position < len(given):
        count = 3 if given[position] == "user-property" else 2
        wanted += ["-D", "publish", *given[position : position + count]]
        position += count
    publish(mqtt_broker, "-V", "5", "-t", name, "-m", "text", *wanted)
    assert lines(program) == ["text/plain answers/to c7 1 7 first:1 second:2 text"]


def test_a_request_and_its_response(mqtt_broker: MqttBroker, subscribe: Subscribe, name: str) -> None:
    """``mosquitto_rr`` publishes a request with a response topic, and waits for the answer."""
    responder = subscribe("-V", "5", "-t", f"{name}/ask", "-C", "1", "-F", "%R %D")
    command = ["mosquitto_rr", *login(mqtt_broker), "-V", "5", "-t", f"{name}/ask", "-e", f"{name}/answer"]
    with subprocess.Popen([*command, "-m", "?"], stdout=subprocess.PIPE, text=True) as requester:
        (asked,) = lines(responder)
        assert asked.split() == [f"{name}/answer"]
        publish(mqtt_broker, "-V", "5", "-t", f"{name}/answer", "-m", "42")
        out, _ = requester.communicate(timeout=TIMEOUT)
    assert out == "42\n"


def test_a_wrong_password(mqtt_broker: MqttBroker, name: str) -> None:
    command = ["mosquitto_pub", "-h", mqtt_broker.host, "-p", str(mqtt_broker.port)]
    arguments = ["-u", "guest", "-P", "wrong", "-t", name, "-m", "x", "-V", "5"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode != 0
