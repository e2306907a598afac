"""This service manages the hosts' SCION files: keys, certificates, TRCs, OpenVPN's files. An extension.

Is      the testbed's CA (`pki`, without Django), `Certificate`, `TRC`, `ASKeys`, their renewal
Offers  files (`delivery.files`), keys of new ASes and VPNs (`testbed.life`), notices (`testbed.cockpit`), a metric
Needs   the core. Without it hosts keep the SCION files of another service.
"""
