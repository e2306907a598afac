"""What a host fetches and its owner downloads: rendering, complete or limits alone, evidence of what it has."""
