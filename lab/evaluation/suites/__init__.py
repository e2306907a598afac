"""One module per experiment; the shape of each is `lab.evaluation.core.Suite`."""
