"""`scionlab-bw-agent selftest`: does this host's kernel really limit what the agent tells it to?

`command` is the door: it starts `inside` in namespaces of its own, shows how far that is and prints the `report`.
`inside` makes a network of two hosts there, tries every kernel feature (`features`, `capabilities`), has the real
engine limit some addresses (`cases`), measures them (`measure`) and judges (`verdict`). Nothing here is imported by
the running agent, and of the agent only this package uses the measuring library.
"""
