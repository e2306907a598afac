"""What each link used: the kernel's own counters, read every ten seconds, kept on the disk, uploaded once a minute.

    kernel ──reading──▶ counters ──lives──▶ segments ──batch──▶ spool (disk) ──usage──▶ service

The counters are absolute, so a sample that is lost costs resolution and never bytes; what must not be lost is a
counter's last word before its class goes (docs/adr/0014). None of this takes part in enforcing: it has a socket and
threads of its own, and whatever fails here is a problem that is told, and nothing else.
"""
