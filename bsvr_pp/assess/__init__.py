"""Assessment of results: evidence, leave-one-out, verification, calibration, scores, comparison."""
