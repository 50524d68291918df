"""Plot docs/widening.png: the example at the top of how-to/noise-of-inputs.md."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent


def main() -> None:
    """Run the first two blocks of the page, and save their figure."""
    page = (HERE / "how-to" / "noise-of-inputs.md").read_text()
    model, plot = re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)[:2]
    namespace: dict[str, object] = {}
    exec(compile(model + plot.replace('"widening.png"', "PATH, dpi=110"), "page", "exec"), namespace | {"PATH": PATH})


PATH = HERE / "widening.png"

if __name__ == "__main__":
    main()
