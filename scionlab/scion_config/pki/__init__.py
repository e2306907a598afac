"""The PKI of a SCION testbed: certificates, TRCs and their updates, as pure functions on values and bytes.

    voters (sensitive, regular)  sign the TRC: the ISD's core ASes, its roots, and the voters of the next TRC
    root                         signs CA certificates; relying parties have it from the TRC
    CA                           signs AS certificates
    AS                           signs beacons, segments and TLS of one AS; host files: the chain AS, CA

No Django, no database, no clock. `tests/scion` checks the results with the programs of SCION v0.15.1. ECDSA signatures
are not deterministic: callers store the bytes, and never create the same TRC twice (two TRCs of one id with different
bytes make a control service exit at its start).

Sources: draft-dekater-scion-pki (the IETF draft), and doc/cryptography/{certificates,trc}.rst of scionproto/scion at
v0.15.1, which the programs implement.
"""
