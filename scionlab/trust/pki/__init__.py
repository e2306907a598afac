"""The keys of a SCION testbed: certificates, TRCs and their updates, as pure functions on values and bytes.

    voters (sensitive, regular)  sign the TRC: the ISD's core ASes, its roots, and who votes on the next TRC
    root                         signs CA certificates; relying parties have it from the TRC
    CA                           signs AS certificates
    AS                           signs beacons, segments and TLS of one AS; host files: the chain AS, CA

Nothing here knows Django, a database or a clock. What is made here is accepted by the programs of SCION v0.15.1, which
the tests ask (`tests/scion`). ECDSA signatures differ each time: whoever calls stores the bytes, and never makes the
same TRC twice (two TRCs of one id with different bytes end a control service at its start).

Sources: draft-dekater-scion-pki (the IETF draft), and doc/cryptography/{certificates,trc}.rst of scionproto/scion at
v0.15.1, which is what the programs implement.
"""
