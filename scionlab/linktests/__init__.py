"""Watches, tests that send, joint tests; why a throughput is what it is."""
