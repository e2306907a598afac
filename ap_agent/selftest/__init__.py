"""`scionlab-bw-limiter selftest`: does this host's kernel really limit what the limiter tells it to?

`command` is the door: it starts `inside` in namespaces of its own, shows how far that is and prints the `report`.
`inside` makes a network of two hosts there, tries what the limiter `needs` of a kernel, has the real engine limit some
`cases`, measures them (`measure`) and judges (`verdict`). No running service imports any of this, and of the agent only
this package uses the measuring library.
"""
