"""What measures beside `measuring`, and no attachment point needs: iperf3, probes, a tap, a QUIC-like flow."""
