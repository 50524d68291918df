"""The search for hyperparameters: the optimum of the evidence, on all rows or in blocks."""
