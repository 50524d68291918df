"""What the tests of the whole repository share: modules are left out whose optional library is not installed."""

from importlib.util import find_spec

OPTIONAL = {
    "bsvr_pp/jax/*.py": "jax",
    "bsvr_pp/integrations/_botorch_model.py": "botorch",
    "bsvr_pp/integrations/skpro.py": "skpro",
}
collect_ignore_glob = [path for path, library in OPTIONAL.items() if find_spec(library) is None]
