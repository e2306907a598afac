"""Keys: signing of configurations, the testbed's PKI, VPNs, and enrolment of hosts."""
