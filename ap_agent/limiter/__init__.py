"""The process with rights and without a network: it makes the kernel agree with the signed document.

To read it from top to bottom: `process` puts the parts together, `loop` says when what is done, `documents` which
document counts, `matching` which packets are a link's, `enforcing` makes it so, `report` writes what the kernel has.
Beside the loop: `events` (what the kernel says unasked), `pacing` (how often it is followed), `counting` and `total`
(the cap of all links). `oneshot` is for commands. `previous_engine` is loaded only where the first engine left
something.
"""
