"""A plugin of pytest for Celery's suite, which imports its own tasks, and with them pydantic for three tests.

These three are left out.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

sys.path.insert(0, str(Path(__file__).parent / ".sources" / "celery"))
if importlib.util.find_spec("pydantic") is None:
    module = ModuleType("pydantic")
    module.BaseModel = object  # type: ignore[attr-defined]
    sys.modules["pydantic"] = module
