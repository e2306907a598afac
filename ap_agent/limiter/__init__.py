"""The limiter: the process with rights and without a network, which applies the signed document to the kernel.

`process` composes the parts, `loop` schedules, `documents` selects the document, `matching` derives keys of links,
`enforcing` applies them, `report` writes the state. Beside the loop: `events` (kernel notifications), `pacing` (rate of
comparisons), `counting` and `total` (cap of all links). `oneshot` is for commands.
"""
