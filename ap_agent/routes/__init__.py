"""Policy routing with several uplinks: replies leave by the uplink where requests arrive.

    uplinks        parses uplinks.toml
    plan           rules and routes of uplinks, and their difference to the kernel's; pure
    kernel         reads and changes rules and routes (pyroute2)
    trial          a change that is rolled back unless it is confirmed
    verify         checks interface counters

Run manually by root (`scionlab-bw-agent routes`), never by the daemons. Links and limits do not depend on it.
"""
