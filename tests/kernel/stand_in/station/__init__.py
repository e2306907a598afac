"""Stands in for the sending end in tests of the agent: it sends exactly what it is asked to."""
