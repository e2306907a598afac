"""The lab: the service, an attachment point and users on one machine, for the demo, for tests, and to measure.

`bench` and `evaluation` are `./dev bench` and `./dev evaluate`; `measuring`, `frames` and `scion` serve them and
the tests. Hosts, traffic and verdicts come from the `measuring` beside `lab`, which ships with the self-test of an
attachment point; `lab.witness` reads the kernel through iproute2, so that what it says is not the agent's testimony.
"""
