"""Where the makers of good files are, which are those of other tests."""

from __future__ import annotations

import sys
from pathlib import Path

for folder in ("data", "plugins/released_weights", "comparison", "grids", "damage"):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))
