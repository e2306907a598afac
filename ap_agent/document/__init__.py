"""What the two processes tell each other, and the service told them: signed documents, who may sign, the state file."""
