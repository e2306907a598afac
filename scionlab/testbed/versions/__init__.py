"""The versions of a host's configuration."""
