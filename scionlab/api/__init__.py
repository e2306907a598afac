"""The REST API and the host API."""
