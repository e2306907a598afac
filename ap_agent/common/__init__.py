"""Shared by both processes, without domain knowledge: errors, files, logging, settings, systemd."""
