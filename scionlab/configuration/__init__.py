"""Configurations of hosts: rendering, downloads, complete or limits only, evidence of unknown versions."""
