"""Journals to read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugins.apis.spark.journals import Journal


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """A journal without rows."""
    return Journal(tmp_path / "journal")
