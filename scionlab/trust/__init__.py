"""Keys: those that sign configurations, those of the testbed (pki), of its VPNs, and enrolment of hosts."""
