"""The parts of a PyMC model (Gaussian process, noise, priors), and the code that reads such a model."""
