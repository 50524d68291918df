"""Side-by-side timings and robustness runs; ``python -m benchmarks`` lists them."""
