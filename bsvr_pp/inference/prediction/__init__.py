"""Predictions: components at points or draws, nearest rows with scales of the noise, and mixtures of components."""
