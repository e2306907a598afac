"""The measuring library: hosts as network namespaces, traffic between them, and the arithmetic of verdicts.

`netns` makes and removes hosts and wires, `scion_packet` builds what a border router puts on a link, `traffic` sends
(`station`, `mmsg`), receives and measures it, `probes` plays bystanders and TCP, `tap` listens on a device, `iperf` is
a second witness, `judge` holds the arithmetic behind every tolerance.

`scionlab-bw-agent selftest`, `./dev evaluate`, the demo, the benchmarks and the measured tests all stand on it. Nothing
here knows how a limit is enforced, and it imports nothing of ours: a measurement cannot lean on what it measures.
"""
