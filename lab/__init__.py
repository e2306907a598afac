"""The lab: the service, an attachment point and users on one machine, for the demo and for tests.

Hosts, traffic and verdicts come from `measuring`; `lab.witness` reads the kernel through iproute2. The lab never
imports the agent's engine: what it says of the kernel is not the agent's own testimony.
"""
