"""The lab: hosts as network namespaces on one machine, SCION-shaped traffic between them, and witnesses that measure.

`lab.netns` makes and removes hosts and wires, `lab.scion_packet` builds what a border router puts on a link,
`lab.traffic` sends, receives and measures it, `lab.probes` plays the bystanders, `lab.judge` holds the arithmetic
behind every tolerance, `lab.witness` reads the kernel through iproute2. The demo, the measured tests and the
evaluation stand on these. Nothing here knows how a limit is enforced: the lab never imports the agent's engine.
"""
