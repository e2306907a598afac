"""This service manages the hosts' SCION files: keys, certificates, TRCs, OpenVPN's files, takeover of a host."""
