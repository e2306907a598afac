"""What the service, the attachment point's agent and the clients agree upon, and nothing else: no Django, no netlink.

- `link_info`: the reader of link_info.json; its writer is `bandwidth_config.py`
- `link_rules`: rules of addresses, ports, interface ids and steps of timed limits
- `link_tests`: rules of tests of Links, and the key `Tests` of link_info.json
- `scion_files`: names of the files of SCION that a host gets

Services, packages and images take the folder whole. `bandwidth_config.py` and `config_tar.py` beside it are of it, too.
"""
