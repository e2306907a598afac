"""Limits along paths, path metadata, sums of several Links."""
