"""Runs whose loading is known to the second."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.made.loading import MadeLoading


@pytest.fixture
def loading(tmp_path: Path) -> MadeLoading:
    return MadeLoading(tmp_path)
