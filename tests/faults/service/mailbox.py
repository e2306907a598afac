"""A mail server that takes what it is sent, and that can be made to answer no more in the middle of one mail."""

from __future__ import annotations

import socketserver
import threading


class Mailbox:
    """`received` are the bodies, in their order. A mail with the subject `unconfirmed` arrives (`reached`), and is
    never confirmed."""

    def __init__(self) -> None:
        self.received: list[str] = []
        self.unconfirmed = ""
        self.reached = threading.Event()
        mailbox = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self._say("220 ready")
                while line := self.rfile.readline():
                    word = line[:4].upper()
                    if word == b"DATA":
                        self._say("354 go on")
                        body = b"".join(iter(self.rfile.readline, b".\r\n"))
                        if mailbox.unconfirmed and f"Subject: {mailbox.unconfirmed}" in body.decode():
                            mailbox.reached.set()
                            self.rfile.readline()  # until the other side is gone
                            return
                        mailbox.received.append(body.decode())
                        self._say("250 kept")
                    elif word == b"QUIT":
                        self._say("221 bye")
                        return
                    else:
                        self._say("250 fine")

            def _say(self, text: str) -> None:
                self.wfile.write(f"{text}\r\n".encode())

        socketserver.ThreadingTCPServer.allow_reuse_address = True
        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
