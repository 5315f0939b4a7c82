"""Links lead somewhere, on a code host and on the site; and code fits into a code host's column."""

from __future__ import annotations

import re
from pathlib import Path

from tests.notes import for_each

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "changes").glob("*.md"),
        *DOCS.rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
    ]
)
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_MARKUP = re.compile(r"[`*]|\[([^\]]*)\]\([^)]*\)")
FIRST_READ = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(DOCS / f"{name}.md" for name in ("index", "install", "get_started", "examples")),
]
COLUMN = 90
"""Letters of code that a code host shows without scrolling."""


def text_of(page: Path) -> str:
    return _FENCED.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", text_of(page), re.MULTILINE)
    plain = (_MARKUP.sub(lambda match: match[1] or "", heading) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in plain}


@for_each("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in _LINK.findall(text_of(page)):
        if link.startswith(("https://", "http://")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        # The site has only what is below docs/.
        if page.is_relative_to(DOCS):
            assert target.is_relative_to(DOCS), f"{link} is not on the site"
        if anchor:
            assert anchor in anchors(target), link


@for_each("page", FIRST_READ, ids=lambda page: page.name)
def test_code_of_the_first_pages_fits_into_the_column_of_a_code_host(page: Path) -> None:
    wide = [
        line
        for block in _FENCED.findall(page.read_text())
        for line in block.splitlines()
        if len(line) > COLUMN
    ]
    assert wide == []


def test_the_site_has_every_page() -> None:
    site = (ROOT / "mkdocs.yml").read_text()
    assert [
        str(page.relative_to(DOCS))
        for page in DOCS.rglob("*.md")
        if f": {page.relative_to(DOCS)}\n" not in site
    ] == []
