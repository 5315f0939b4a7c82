"""The ticker in a kernel.  It is registered by hand, so that it need not be installed to be tested."""

from __future__ import annotations

from kernel_ticker import plugin

from kernel import EnginePlan, Kernel, Origin, Plan, PluginRegistry, RoutePlan, WaterMarks


def _registry() -> PluginRegistry:
    registry = PluginRegistry.load()
    if "ticker" not in registry.plugins:
        registry.add(plugin, Origin("ticker", "kernel-ticker", "1.0"))
    return registry


def _plan(seconds: float, *routes: RoutePlan) -> Plan:
    ticker = EnginePlan(name="clock", kind="ticker", options={"seconds": seconds, "key": "clock"})
    return Plan(engines=(ticker, EnginePlan(name="app", kind="native")), routes=routes)


def test_it_ticks_in_order_under_its_key() -> None:
    route = RoutePlan(source="clock", targets=("app",))
    with Kernel(_plan(0.001, route), _registry()) as kernel, kernel.open("app") as app:
        messages = [app.receive_message(timeout=5) for _ in range(3)]
    assert [(message.key, bytes(message)) for message in messages] == [
        ("clock", b"tick 1"),
        ("clock", b"tick 2"),
        ("clock", b"tick 3"),
    ]


def test_it_waits_while_nobody_can_take_more_and_leaves_no_number_out() -> None:
    route = RoutePlan(source="clock", targets=("app",), marks=WaterMarks(high=2))
    with Kernel(_plan(0.001, route), _registry()) as kernel, kernel.open("app") as app:
        numbers = [int(bytes(app.receive(timeout=5)).split()[1]) for _ in range(20)]
    assert numbers == list(range(1, 21))


def test_what_is_routed_to_it_becomes_its_text() -> None:
    routes = (
        RoutePlan(source="clock", targets=("app",)),
        RoutePlan(source="app", targets=("clock",), confirm=True),
    )
    with Kernel(_plan(0.001, *routes), _registry()) as kernel, kernel.open("app") as app:
        app.send(b"tock")
        app.wait_confirmed(timeout=5)
        while not bytes(app.receive(timeout=5)).startswith(b"tock"):
            pass
