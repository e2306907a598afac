"""`scionlab-bw-limiter selftest`: tests whether this host's kernel enforces the limits.

`command` starts `inside` in separate namespaces, shows its progress and prints the `report`. `inside` builds a network
of two hosts, tests the `needs`, lets the real engine limit the `cases`, measures them (`measure`) and judges them
(`verdict`). No service imports this package, and in the agent only this package uses the measuring library.
"""
