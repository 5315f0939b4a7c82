"""Operators' page: one HTML file with its script and its style.

Its content security policy allows these and no others.
"""

from __future__ import annotations

import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files

from plugins.engines.web.answer import Answer, Respond


def show(respond: Respond) -> None:
    """Answer with the page."""
    respond(_answer())


@cache
def _answer() -> Answer:
    text = files("plugins.engines.web").joinpath("page.html").read_text("utf-8")
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hashes(text, 'script')}",
            f"style-src {_hashes(text, 'style')}",
            "connect-src 'self'",
            # The picture of the tab, which is empty: without it browsers ask for /favicon.ico.
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )
    return Answer(200, (text.encode(),), "text/html; charset=utf-8", policy=policy)


def _hashes(text: str, tag: str) -> str:
    contents = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    return " ".join(f"'sha256-{b64encode(sha256(each.encode()).digest()).decode()}'" for each in contents)
