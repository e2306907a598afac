"""Every write with consequences, a module per noun."""
