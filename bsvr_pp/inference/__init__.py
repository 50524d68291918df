"""From a model to a result: methods, `fit`, sampling, the schema of results, predictions."""
