"""Settings of the test run."""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
# Shared problems of the approximations' tests.
sys.path.insert(0, str(Path(__file__).parent / "approximations"))
