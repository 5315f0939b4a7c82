"""Engines and routes with an empty ``when``."""

from __future__ import annotations

import pytest

from kernel.contracts.errors import PlanError
from kernel.plugins import PluginRegistry
from kernel.topology.check import make_plan
from kernel.topology.file import read_text
from kernel.topology.plan import Plan, diff

APP = '[engines.app]\nkind = "native"\n'
MORE = '[engines.more]\nkind = "{kind}"\nwhen = "${{MORE:-}}"\n{rest}'


@pytest.fixture(scope="module")
def registry() -> PluginRegistry:
    return PluginRegistry.load()


def plan_of(text: str, registry: PluginRegistry, **environ: str) -> Plan:
    return make_plan(read_text(text, "f", environ), registry)


def more(kind: str = "native", rest: str = "") -> str:
    return APP + MORE.format(kind=kind, rest=rest)


def test_an_engine_is_there_when_its_condition_is(registry: PluginRegistry) -> None:
    assert [each.name for each in plan_of(more(), registry, MORE="yes").engines] == ["app", "more"]
    plan = plan_of(more(), registry)
    assert [each.name for each in plan.engines] == ["app"]
    assert plan.left_out == ("f:3: engine 'more' is left out, because its 'when' is empty",)


def test_what_is_left_out_may_be_of_a_kind_that_is_not_installed(
    registry: PluginRegistry,
) -> None:
    text = more("no-such-kind", 'bind = ["tcp://127.0.0.1:${MORE}"]\n')
    assert [each.name for each in plan_of(text, registry).engines] == ["app"]
    with pytest.raises(PlanError) as refused:
        plan_of(text, registry, MORE="1")
    (complaint,) = refused.value.complaints
    assert complaint.startswith("f:4: unknown engine kind 'no-such-kind'")


def test_an_optional_engine_is_left_out_where_its_kind_is_not_installed(registry: PluginRegistry) -> None:
    routes = '[[routes]]\nfrom = "app"\nto = "more"\n'
    plan = plan_of(more("natvie", "optional = true\n") + routes, registry, MORE="1")
    assert [each.name for each in plan.engines] == ["app"]
    assert plan.routes == ()
    why, route = plan.left_out
    assert why.startswith("f:3: engine 'more' is left out, because its kind 'natvie' is not installed;")
    assert "'native'" in why
    assert route == "f:7: this route is left out with engine 'more'"
    with_it = plan_of(more(rest="optional = true\n") + routes, registry, MORE="1")
    assert [each.name for each in with_it.engines] == ["app", "more"]
    assert with_it.left_out == ()


def test_a_mistake_in_an_optional_engine_that_is_installed_is_one(registry: PluginRegistry) -> None:
    with pytest.raises(PlanError) as refused:
        plan_of(more(rest="optional = true\nno_such_option = 1\n"), registry, MORE="1")
    assert any("no_such_option" in complaint for complaint in refused.value.complaints)
    with pytest.raises(PlanError) as refused:
        plan_of(more("no-such-kind", 'optional = "yes"\n'), registry, MORE="1")
    assert "f:6: [engines.more] optional: must be true or false" in refused.value.complaints


ROUTES = {
    "to it": (
        'from = "app"\nto = "more"\n',
        "this route is left out with engine 'more'",
        [],
    ),
    "from it": (
        'from = "more"\nto = "app"\n',
        "this route is left out with engine 'more'",
        [],
    ),
    "to others as well": (
        'from = "app"\nto = ["more", "third"]\n',
        "this route does not lead to engine 'more', which is left out",
        [("third",)],
    ),
    "its dead letters": (
        'from = "app"\nto = "third"\nconfirm = true\ndead_letters = "more"\n',
        "this route has no dead letters: engine 'more' is left out",
        [("third",)],
    ),
    "by itself": (
        'from = "app"\nto = "third"\nwhen = ""\n',
        "this route is left out, because its 'when' is empty",
        [],
    ),
}


@pytest.mark.parametrize("name", ROUTES)
def test_routes_lead_neither_from_nor_to_it(name: str, registry: PluginRegistry) -> None:
    keys, told, targets = ROUTES[name]
    plan = plan_of(more() + '[engines.third]\nkind = "native"\n[[routes]]\n' + keys, registry)
    assert plan.left_out[1:] == (f"f:8: {told}",)
    assert [route.targets for route in plan.routes] == targets
    assert [route.dead_letters for route in plan.routes] == [None] * len(targets)


def test_mistakes_of_other_parts_are_reported(registry: PluginRegistry) -> None:
    with pytest.raises(PlanError) as refused:
        plan_of(more() + '[[routes]]\nfrom = "app"\nto = "moer"\n', registry)
    (complaint,) = refused.value.complaints
    assert complaint.startswith("f:8: this route leads to 'moer', which is no engine of this file")


@pytest.mark.parametrize("table", ["[engines.app]\nkind = 'native'\n", "[[routes]]\nfrom = 'a'\nto = 'b'\n"])
def test_a_condition_is_text(table: str, registry: PluginRegistry) -> None:
    with pytest.raises(PlanError) as refused:
        plan_of(table + "when = false\n", registry)
    assert any("when" in complaint for complaint in refused.value.complaints)


def test_a_file_of_which_all_is_left_out_is_no_mistake(registry: PluginRegistry) -> None:
    assert plan_of('[engines.app]\nkind = "native"\nwhen = ""\n', registry).engines == ()


def test_a_change_of_a_condition_starts_and_ends_the_engine_with_its_routes(registry: PluginRegistry) -> None:
    text = more() + '[[routes]]\nfrom = "app"\nto = "more"\n'
    without, whole = plan_of(text, registry), plan_of(text, registry, MORE="yes")
    assert diff(without, whole).lines() == ["+ engine more", "+ route app -> more"]
    assert diff(whole, without).lines() == ["- route app -> more", "- engine more"]
