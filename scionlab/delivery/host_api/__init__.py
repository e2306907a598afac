"""The host API v4: what agents and stock clients fetch and report."""
