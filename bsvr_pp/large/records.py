"""Plain data in the files of a folder: what a fit is of, and what its stages have found."""

from __future__ import annotations

import json
from collections import UserDict
from pathlib import Path
from typing import Any

from bsvr_pp._atomic_write import atomic_write


class Records(UserDict[str, Any]):
    """Plain data by name, each in a JSON file of a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.data = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}

    def __setitem__(self, name: str, data: Any) -> None:
        with atomic_write(self.folder / f"{name}.json") as fresh:
            fresh.write_text(json.dumps(data, indent=1) + "\n")
        super().__setitem__(name, data)
