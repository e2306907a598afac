"""Whole datagrams: an eBPF program in front of the HTB tree, which admits all fragments of a datagram or none.

`assembler` writes eBPF instructions, `program` is the program, `bpf` speaks bpf(2), `admission` keeps the limits in its
maps. docs/adr/0020 says why it is there and what was tried before.
"""
