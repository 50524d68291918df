"""Samples of the hyperparameters: NUTS, its checkpoints, and the latent function of a model without it."""
