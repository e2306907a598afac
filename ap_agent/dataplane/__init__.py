"""The engine: the program that limits links (limiter.bpf.c), its maps, the tree on two IFBs, and what applies a
`Wanted` to the kernel (docs/adr/0028). Independent of documents."""
