"""Settings from the environment: `base`, and differences in `dev`, `test` and `prod`."""
