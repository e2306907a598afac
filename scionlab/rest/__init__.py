"""The REST API v1, for people's scripts."""
