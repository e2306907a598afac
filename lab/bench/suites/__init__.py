"""One module per suite: `steps(scale)` says what to do, `verdicts(outcome)` and `plots(outcome)` what came out."""
