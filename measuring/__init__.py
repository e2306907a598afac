"""The measuring library: hosts as network namespaces, traffic between them, and the arithmetic of verdicts.

`netns` makes and removes hosts and wires; `worker` starts the processes of a measurement at one moment;
`scion_packet` builds what a border router puts on a link; `traffic` (`station`, `mmsg`) sends, receives and measures
paced UDP of any size, heartbeats and echo questions (`echo`: latency under load); `tcp` is flows that react to loss;
`framing` knows what headers and fragments cost, `arrivals` what came, and `judge` holds the arithmetic behind every
tolerance.

`scionlab-bw-limiter selftest`, which is packaged with it, `./dev evaluate`, the demo, the benchmarks and the measured
tests all stand on it; what only those need is in `lab.measuring`.
Nothing here knows how a limit is enforced, and it imports nothing of ours: a measurement cannot lean on what it
measures.
"""
