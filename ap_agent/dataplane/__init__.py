"""The engine: the program that limits links (limiter.bpf.c), its maps, the tree on two IFBs, and what makes the kernel
agree with a `Wanted` (docs/adr/0028). Nothing here knows a document.
"""
