"""People and hosts who use the lab's service through nginx until SIGTERM; then it prints what they got, as JSON.

    traffic.py PORT CERTIFICATE '{"link": 1, "token": "...", "hosts": [["uid", "secret"], ...]}'

The script of a person saves a bandwidth, a host waits for something newer for 5 s, another asks as the stock client
does. A poll that the web tier sends away with a time to return is counted by itself; it returns.
"""

import base64
import http.client
import io
import json
import signal
import ssl
import sys
import tarfile
import threading
from collections import Counter
from collections.abc import Callable

port, certificate, world = int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
context = ssl.create_default_context(cafile=certificate)
answers: Counter[str] = Counter()
is_over = threading.Event()


class Connection(http.client.HTTPSConnection):
    """To this machine's port, checked as lab.example.org."""

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = context.wrap_socket(self.sock, server_hostname="lab.example.org")


def ask(method: str, path: str, authorization: str, body: str | None = None) -> tuple[int, bytes, str | None]:
    connection = Connection("127.0.0.1", port, timeout=60)
    headers = {"Host": "lab.example.org", "Authorization": authorization, "Content-Type": "application/json"}
    headers["User-Agent"] = "scionlab-bw-agent/lab"
    try:
        connection.request(method, path, body=body, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.getheader("Retry-After")
    finally:
        connection.close()


def save(number: int) -> tuple[int, bytes, str | None]:
    body = json.dumps({"bandwidth_kbit": 500 + number % 400})
    return ask("PATCH", f"/api/v1/links/{world['link']}/", f"Token {world['token']}", body)


def poll(host: int, query: str) -> tuple[int, bytes, str | None]:
    uid, secret = world["hosts"][host]
    basic = base64.b64encode(f"{uid}:{secret}".encode()).decode()
    return ask("GET", f"/api/v4/host/{uid}/config?{query}", f"Basic {basic}")


def repeat(name: str, one: Callable[[int], tuple[int, bytes, str | None]]) -> None:
    number = 0
    while not is_over.is_set():
        number += 1
        pause_s = 0.2
        try:
            status, body, after = one(number)
        except (OSError, http.client.HTTPException) as exc:
            answers[f"{name} {exc!r}"] += 1
            continue
        if status == 503 and b"Ask again after" in body and after:
            answers[f"{name} sent away"] += 1
            pause_s = int(after)
        else:
            answers[f"{name} {status}"] += 1
        is_over.wait(pause_s)


signal.signal(signal.SIGTERM, lambda *_: is_over.set())
versions = {}
for host in (0, 1):
    # 1.0 is older than any, so the answer has the version that the next polls name
    status, body, _ = poll(host, "version=1.0")
    with tarfile.open(fileobj=io.BytesIO(body)) as tar:
        versions[host] = json.load(tar.extractfile("scionlab-config.json") or io.BytesIO())["version"]
work = [
    ("save", save),
    ("poll", lambda _: poll(1, f"version={versions[1]}&wait=5")),
    ("stock client", lambda _: poll(0, f"version={versions[0]}")),
]
threads = [threading.Thread(target=repeat, args=one) for one in work]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.stdout.write(json.dumps(answers) + "\n")
