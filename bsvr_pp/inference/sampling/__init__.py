"""Samples of the hyperparameters: NUTS, and the latent function of a model without it."""
