"""Benchmarks of running time and robustness; ``python -m benchmarks --help`` lists them."""
