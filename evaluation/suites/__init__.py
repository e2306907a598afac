"""One module per experiment; the shape of each is `evaluation.core.Suite`."""
