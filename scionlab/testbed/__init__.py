"""ISDs, ASes, hosts, interfaces, Links, attachment points and the audit of changes; numbers, locks, addresses, and
what raises the versions H, L and G."""
