"""Pages about one's own account: registration, password, profile, API tokens. What they do is in `services.account`."""
