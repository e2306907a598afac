"""What grows with a testbed: one module for each group of rows of `lab.bench.suites.scale`, which lists them.

A group offers `steps`, `tables` and `plots` as a suite does. What needs Django runs in `lab.bench.scale.program`.
"""
