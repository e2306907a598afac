"""Doors for hosts."""
