"""The examples of the README run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytensor
import pytest

README = Path(__file__).parent.parent / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("sampled", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["quick", "all"])
def test_examples_run_one_after_the_other(sampled, capsys):
    namespace: dict[str, object] = {}
    for example in EXAMPLES:
        if "pm.sample(" in example and not sampled:
            continue
        # PyMC evaluates its log density some thousand times: compiled, as readers have it, this is cheaper.
        mode = {"mode": "NUMBA"} if "pm.sample(" in example else {}
        with pytensor.config.change_flags(**mode):
            exec(compile(example, str(README), "exec"), namespace)
        printed = capsys.readouterr().out
        assert printed
        if "bp.compare(" in example:  # one line for each method, and all columns
            assert [line for line in printed.splitlines() if line.startswith(("MAP ", "Laplace ", "mean field "))][2:]
            assert "..." not in printed and max(map(len, printed.splitlines()[:-1])) <= 80


def test_pictures_exist():
    for picture in re.findall(r"!\[.*?\]\((.*?)\)", README.read_text()):
        assert (README.parent / picture).stat().st_size < 200_000
