"""`scionlab-bw`: the REST API of the SCIONLab Bandwidth Service on the command line.

It imports nothing of the service and nothing of the agent; it needs Python 3.11 and requests.
"""

VERSION = "0.1.0"
