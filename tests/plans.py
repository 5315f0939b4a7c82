"""Parts of plans; nothing here imports pytest, so that programs of tests start quickly."""

from __future__ import annotations

from typing import Any

from kernel.pipes.water_marks import WaterMarks
from kernel.topology.plan import RoutePlan


def route(source: str, *targets: str, **options: Any) -> RoutePlan:
    """Return a route; ``marks`` are options of its water marks."""
    marks = WaterMarks(**options.pop("marks", {}))
    return RoutePlan(source=source, targets=targets, marks=marks, **options)
