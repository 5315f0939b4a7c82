"""The half of ``before_after`` that runs inside the tree that is measured.

It is a program and not a module of its package, because an older tree does not have it: the driver starts it
with the interpreter of the tree's environment, in the tree's folder.  So it may import only the standard
library before it knows where it is, and of the tree only what every version has: the scenarios.

It writes the rows to its standard output.  Then it answers each line (the name of a scenario, a tab, the name
of a side) with the result of one measurement, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def main() -> None:
    """Answer until the driver closes the pipe."""
    sys.path[0] = os.getcwd()  # instead of the folder of this file, which belongs to another tree
    from benchmarks.scenario import Unavailable
    from benchmarks.scenarios import all_scenarios

    # Measurements print now and then: only the answers may go to the driver.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    scenarios = {scenario.name: scenario for scenario in all_scenarios()}
    rows = [
        {
            "name": row.name,
            "scenario": name,
            "side": row.ours,
            "figure": row.figure,
            "unit": row.unit,
            "more": row.more_is_better,
        }
        for name, scenario in scenarios.items()
        for row in scenario.rows
    ]
    print(json.dumps(rows), file=answers, flush=True)
    for line in sys.stdin:
        name, _, side_name = line.rstrip("\n").partition("\t")
        (side,) = (side for side in scenarios[name].sides if side.name == side_name)
        before = _processor_seconds()
        answer: dict[str, Any]
        try:
            answer = {"figures": side.measure(1.0), "processor": _processor_seconds() - before}
        except Unavailable as why:
            answer = {"missing": str(why)}
        print(json.dumps(answer), file=answers, flush=True)


def _processor_seconds() -> float:
    """Seconds that this process and those of its children that have ended have worked."""
    return sum(os.times()[:4])


if __name__ == "__main__":
    main()
