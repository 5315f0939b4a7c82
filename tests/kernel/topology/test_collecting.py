"""The collector around a start, in a process of its own: what it leaves out is left out for good."""

from __future__ import annotations

import json
import subprocess
import sys

_PROGRAM = """
import gc, json
from kernel.topology.collecting import begin_start, end_start

def told():
    return gc.get_threshold(), gc.get_freeze_count()

steps = [told()]
end_start()  # nothing was begun, as in an application that has a kernel of its own
steps.append(told())
begin_start()
steps.append(told())
end_start()
steps.append(told())
end_start()
steps.append(told())
print(json.dumps(steps))
"""


def test_the_collector_rests_during_a_start_and_leaves_out_what_is_there() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, check=True, text=True)
    untouched, without_begin, begun, ended, again = json.loads(done.stdout)
    assert untouched == without_begin
    assert begun[0][0] > 2 * untouched[0][0]
    assert begun[0][1:] == untouched[0][1:]
    assert ended[0] == again[0] == untouched[0]
    # Python 3.12 has left out something already when it begins.
    assert ended[1] > untouched[1] + 1000
    assert again[1] >= ended[1]
