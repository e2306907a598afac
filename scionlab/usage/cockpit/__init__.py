"""Pages of the cockpit."""
