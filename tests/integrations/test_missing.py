"""Without its library a module says in one sentence how to install it."""

import importlib
import sys
import tomllib
from pathlib import Path

import pytest

EXTRAS = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.mark.parametrize(("library", "module"), [("botorch", "_botorch_model"), ("skpro", "skpro")])
def test_a_missing_library_is_named_with_the_line_that_installs_it(library, module, monkeypatch):
    name = f"bsvr_pp.integrations.{module}"
    monkeypatch.delitem(sys.modules, name, raising=False)
    for loaded in [m for m in sys.modules if m.split(".")[0] == library]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, library, None)
    assert library in EXTRAS
    with pytest.raises(ImportError, match=rf"need {library}: pip install 'bsvr-pp\[{library}\]'"):
        importlib.import_module(name)
