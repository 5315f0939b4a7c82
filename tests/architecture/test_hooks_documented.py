"""``docs/hooks.md`` has every hook, with its exact signature, in calling order."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from kernel import hookspecs

PAGE = Path(__file__).parents[2] / "docs" / "hooks.md"


def test_every_hook_is_documented_with_its_exact_signature() -> None:
    hooks = [hook for hook in vars(hookspecs).values() if hasattr(hook, "kernel_spec")]
    signatures = [f"{hook.__name__}{inspect.signature(hook)}".replace("'", "") for hook in hooks]
    assert re.findall(r"^## `(.*)`$", PAGE.read_text(), re.MULTILINE) == signatures
