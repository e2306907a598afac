"""What both processes use, and nothing of the field: errors, files, logging, settings, systemd."""
