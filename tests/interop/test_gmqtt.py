"""gmqtt's own test suite, unchanged: ours passes at least what mosquitto passes."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import inspect
import sys
import traceback
import uuid
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from importlib import metadata
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.interop.mqtt_brokers import MqttBroker
from tests.peers import optional

gmqtt = optional("gmqtt")

pytestmark = pytest.mark.peer("gmqtt")

_SUITE = "tests/test_mqtt5.py"
_UTILITIES = "tests/utils.py"
FAIL_ON_MOSQUITTO = {
    # gmqtt makes up an identifier for a client without one, so no broker assigns one.
    "test_assigned_clientid",
    # It expects messages again that its client has acknowledged, if with a failure, before it connects again.
    "test_async_on_message",
}


def _suite_files() -> dict[str, Path]:
    return {
        str(path): Path(str(path.locate()))
        for path in metadata.files("gmqtt") or ()
        if str(path) in (_SUITE, _UTILITIES)
    }


def _load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def load_suite(monkeypatch: pytest.MonkeyPatch) -> Callable[[MqttBroker], ModuleType]:
    """Load the suite for one broker; each time with topics and client identifiers of its own."""
    files = _suite_files()
    utilities = _load("tests.utils", files[_UTILITIES])

    async def nothing_to_clean(*_: Any, **__: Any) -> None:
        """No other test has the topics and the clients of this one."""

    monkeypatch.setattr(utilities, "cleanup", nothing_to_clean)
    monkeypatch.setattr(utilities, "clean_retained", nothing_to_clean)
    monkeypatch.setitem(sys.modules, "tests.utils", utilities)
    set_credentials = gmqtt.Client.set_auth_credentials
    monkeypatch.setattr(
        gmqtt.Client,
        "set_auth_credentials",
        lambda client, *_, **__: set_credentials(client, "guest", "guest"),
    )

    connect = gmqtt.Client.connect
    # Its tests are run here, and not by pytest, which would want the plugin for asyncio.
    as_it_is = SimpleNamespace(asyncio=lambda function: function)
    plain = SimpleNamespace(fixture=lambda: lambda function: function, mark=as_it_is)

    def load(broker: MqttBroker) -> ModuleType:
        with monkeypatch.context() as context:
            context.setitem(sys.modules, "pytest", plain)
            suite = _load(f"gmqtt_suite_{uuid.uuid4().hex}", files[_SUITE])
        suite.host, suite.port = broker.host, broker.port  # type: ignore[attr-defined]

        def connect_to_broker(*arguments: Any, **options: Any) -> Any:
            # One test has a port for TLS of its own.
            if options.get("ssl"):
                options["port"] = broker.tls_port
            return connect(*arguments, **options)

        monkeypatch.setattr(gmqtt.Client, "connect", connect_to_broker)
        monkeypatch.setenv("SSL_CERT_FILE", broker.authority)
        return suite

    return load


def _tests_of(suite: ModuleType) -> list[str]:
    return [name for name in vars(suite) if name.startswith("test_")]


@asynccontextmanager
async def _clients(suite: ModuleType) -> AsyncIterator[Any]:
    clients = suite.init_clients()
    try:
        yield await anext(clients)
    finally:
        await anext(clients, None)


async def _result(suite: ModuleType, name: str) -> str:
    """Run one test; return what went wrong, empty if nothing."""
    test: Callable[..., Coroutine[Any, Any, None]] = getattr(suite, name)
    try:
        if inspect.signature(test).parameters:
            async with _clients(suite) as clients:
                await test(clients)
        else:
            await test()
    except Exception:
        return traceback.format_exc()
    return ""


def _run(load: Callable[[MqttBroker], ModuleType], broker: MqttBroker) -> dict[str, str]:
    """Run the whole suite; its tests spend their time asleep, so all run at once."""

    async def main() -> dict[str, str]:
        suites = {name: load(broker) for name in _tests_of(load(broker))}
        results = await asyncio.gather(*(_result(suite, name) for name, suite in suites.items()))
        # The suite does not close all of its connections.
        for each in gc.get_objects():
            if isinstance(each, asyncio.Transport) and not each.is_closing():
                each.abort()
        await asyncio.sleep(0)
        return dict(zip(suites, results, strict=True))

    return asyncio.run(main())


@pytest.mark.slow
def test_the_suite_passes(load_suite: Callable[[MqttBroker], ModuleType], mqtt_broker: MqttBroker) -> None:
    with warnings.catch_warnings():
        # It forgets some connections before ``_run`` can close them.
        warnings.simplefilter("ignore", ResourceWarning)
        results = _run(load_suite, mqtt_broker)
        gc.collect()
    failed = {name: why for name, why in results.items() if why}
    assert len(results) >= 15
    assert set(failed) <= FAIL_ON_MOSQUITTO, "\n".join(failed.values())
