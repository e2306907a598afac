"""Files exchanged by the two processes, and documents from the service: signed text, trust, state."""
