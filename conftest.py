"""What the tests of the whole repository share: modules that need JAX are left out where it is not installed."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("jax") else ["bsvr_pp/jax/*.py"]
