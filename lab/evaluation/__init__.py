"""The evaluation: the thesis' chapter 6 repeated, with other limiters beside ours, and what it did not measure.

`./dev evaluate` runs it and writes docs/evaluation.md, plots and samples; with QUICK=1 it fails where a claim
no longer holds.
"""
