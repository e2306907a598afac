"""One module per suite: `steps(scale)` says what to do, `tables(outcome)` and `plots(outcome)` show what came out."""
