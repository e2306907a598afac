"""The product's main job on one machine, with real packets: `./dev demo`, `python -m lab.demo`."""
