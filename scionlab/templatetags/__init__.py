"""What the templates need to show values of this domain."""
