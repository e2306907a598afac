"""What `lab.bench.suites.scale` measures runs in `program`, on the testbed of any size that `world` makes."""
