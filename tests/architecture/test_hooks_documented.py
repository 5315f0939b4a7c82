"""``docs/hooks.md`` has every hook, with its exact signature, in calling order."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from kernel import hookspecs
from kernel.plugins import GROUPS, PluginRegistry

PAGE = Path(__file__).parents[2] / "docs" / "hooks.md"


def test_every_hook_is_documented_with_its_exact_signature() -> None:
    hooks = [hook for hook in vars(hookspecs).values() if hasattr(hook, "kernel_spec")]
    signatures = [f"{hook.__name__}{inspect.signature(hook)}".replace("'", "") for hook in hooks]
    assert re.findall(r"^## `(.*)`$", PAGE.read_text(), re.MULTILINE) == signatures


def test_every_hook_of_our_plugins_is_documented_with_its_exact_signature() -> None:
    groups = [group for group in PluginRegistry.load(environ={}).groups.values() if group not in GROUPS]
    signatures = {
        f"{group.hook.__name__}{inspect.signature(group.hook)}".replace("'", "") for group in groups
    }
    assert set(re.findall(r"^\| `(.*?)` \| `\w+` \|", PAGE.read_text(), re.MULTILINE)) == signatures
