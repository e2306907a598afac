"""ISDs, infrastructure ASes, attachment points, hosts and their addresses."""
