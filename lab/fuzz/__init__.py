"""Hostile inputs for what the agent reads from the network; `tests/property/test_bundle_any_bytes.py` tries them.

`targets` has the promises, `mutators` what is done to inputs so that they get deep, `archives` how a tarball is taken
apart and signed anew, `fence` what notices a touch outside of the state directory, `planted` bugs that must
be found.
"""
