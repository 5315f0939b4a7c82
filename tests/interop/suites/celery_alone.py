"""A plugin of pytest for Celery's suite, which runs in a process of its own.

Its tests import their tasks as ``t.integration.tasks``.  There is one worker, and so one answer to each question to
all workers: without a limit, each such question waits a second for more of them, also after each test.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

from celery.app.control import Control

sys.path.insert(0, str(Path(__file__).parent / ".sources" / "celery"))

_ask_all = Control.broadcast


@functools.wraps(_ask_all)
def _ask_the_worker(control: Control, *arguments: Any, limit: int | None = None, **options: Any) -> Any:
    return _ask_all(control, *arguments, limit=limit or 1, **options)


Control.broadcast = _ask_the_worker
