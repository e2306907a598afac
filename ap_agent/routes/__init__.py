"""Policy routing of an attachment point with several uplinks: replies leave by the uplink where requests arrive.

    uplinks        reads uplinks.toml
    plan           from uplinks and host to rules and routes, and what differs from those in the kernel; pure
    kernel         reads and changes rules and routes (pyroute2)
    trial          a change that is rolled back unless it is confirmed
    verify         judges by the counters of interfaces

Run by root's hand (`scionlab-bw-agent routes`), never by the daemons. Links and limits do not depend on it.
"""
