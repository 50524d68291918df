"""Predictions from any result: components at points or draws, nearest rows, parts of f, and mixtures."""
