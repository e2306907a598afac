"""What the service stands on and what knows nothing of Links: Redis, queue, retries, logs, requests, errors."""
