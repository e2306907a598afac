"""`scionlab-bw`: a command line client of the SCIONLab Bandwidth Service's REST API.

Independent of the service's and the agent's code; needs Python 3.11 and requests.
"""

VERSION = "0.1.0"
