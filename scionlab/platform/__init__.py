"""Infrastructure that is independent of Links: Redis, queue, retries, logs, requests, errors."""
