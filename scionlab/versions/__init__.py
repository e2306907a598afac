"""Versions of a host's configuration: what raises H and L, the generation G, and issued documents."""
