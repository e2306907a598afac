"""`mpget`: one file over several paths at once, from any web server with Range (mpget(1), docs/mpget.md).

It imports nothing of ours and needs Python 3.11 alone.
"""

VERSION = "0.1.0"
