"""The real SCION programs, built from pinned Go modules into a cache outside the checkout, for tests and the lab."""
