"""The REST API v1, for scripts."""
