"""Health, metrics, and retention."""
