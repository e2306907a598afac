"""Settings from the environment: `base`, and what differs in `dev`, `test` and `prod`."""
