"""Sequences of damaged frames against the limiter's program: `python -m lab.frames`.

    shape ── grow ── replay ── judge        `shape`: a frame as its fields; `grow`: sequences from a seed
                └──── wire     └─ linux     `linux`: what Linux makes of frames, from RFCs and its behaviour

`replay` runs them through BPF_PROG_TEST_RUN for numbers, `wire` sends a sample over a veth pair from two processors.
"""
