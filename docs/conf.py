"""Sphinx configuration; pages that describe code are rendered from it here."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import render  # noqa: E402

render.write_all(HERE)

project = "Cordée"
author = "The Cordée authors"
extensions = ["myst_parser"]
myst_enable_extensions = ["deflist", "colon_fence"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "Cordée"
exclude_patterns = ["_build", "notebooks"]
