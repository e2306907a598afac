"""A POST to an address that a person entered: where it goes, where it does not, and that it ends."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from bandwidth_config import RuleError
from scionlab.platform import outgoing
from scionlab.platform.outgoing import NotDeliveredError, checked_url, is_public, post
from tests.receiver import Receiver, receiving


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as server:
        yield server


def send(url: str, **allowed: bool) -> int:
    return post(url, b"{}", {"X": "1"}, **{"is_http_allowed": True, "is_inside_allowed": True, **allowed})


def test_addresses_inside_are_known_in_each_spelling() -> None:
    inside = "127.0.0.1 127.9.9.9 10.0.0.1 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 0.0.0.0 255.255.255.255 "
    inside += "224.0.0.1 ::ffff:224.0.0.1 ::1 :: fe80::1%eth0 fc00::1 ff02::1"
    inside += " ::ffff:10.0.0.1 64:ff9b::7f00:1 2002:7f00:1::1 2001:db8::1"
    assert [one for one in inside.split() if is_public(one)] == []
    public = ["8.8.8.8", "2600::1", "::ffff:8.8.8.8", "64:ff9b::808:808"]
    assert [one for one in public if not is_public(one)] == []


def test_only_urls_of_the_allowed_kind_are_taken() -> None:
    wrong = "http://example.org https:// https://u:p@example.org https://u@example.org https://example.org/#x x"
    wrong += " ftp://example.org https://example.org:0 https://example.org:x https://[::1 https://example.org/\n"
    for url in [*wrong.split(" "), "", "https://example.org/a b", "https://exämple.org", "https://e.org/" + "x" * 500]:
        with pytest.raises(RuleError) as error:
            checked_url(url, is_http_allowed=False)
        assert error.value.code == "url_invalid", url
    assert checked_url("https://example.org:8443/a?b=c", is_http_allowed=False).port == 8443
    assert checked_url("http://example.org", is_http_allowed=True).scheme == "http"


def test_it_arrives_as_it_was_given_and_redirects_are_not_followed(receiver: Receiver) -> None:
    assert send(receiver.url()) == 204
    ((path, headers, body),) = receiver.got
    assert (path, headers["X"], headers["Host"], body) == (
        "/hook?room=1",
        "1",
        f"localhost:{receiver.server_port}",
        b"{}",
    )
    for status, words in ((302, "answered 302; redirects are not followed"), (500, "answered 500")):
        receiver.status = status
        with pytest.raises(NotDeliveredError, match=words):
            send(receiver.url())
    assert {path for path, _, _ in receiver.got} == {"/hook?room=1"}


def test_nothing_inside_is_reached_however_it_is_written(receiver: Receiver) -> None:
    for host in ("127.0.0.1", "localhost", "0x7f.1", "2130706433", "[::ffff:127.0.0.1]", "0.0.0.0"):
        with pytest.raises(NotDeliveredError, match="which is not public"):
            send(receiver.url(host=host), is_inside_allowed=False)
    assert receiver.got == []


def test_a_name_is_resolved_once_and_one_bad_address_is_enough(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, asked = socket.getaddrinfo, []

    def resolve(host: str, port: int, *rest: Any, **named: Any) -> Any:
        if host != "hook.example.org":
            return real(host, port, *rest, **named)
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    addresses = ["127.0.0.1"]
    assert send(receiver.url(host="hook.example.org")) == 204
    assert asked == ["hook.example.org"]
    addresses = ["8.8.8.8", "10.0.0.1"]
    with pytest.raises(NotDeliveredError, match=r"has the address 10\.0\.0\.1"):
        send(receiver.url(host="hook.example.org"), is_inside_allowed=False)


def test_who_talks_for_ever_or_not_at_all_is_cut_off(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing, "TOTAL_S", 0.3)
    receiver.drips = True
    with pytest.raises(NotDeliveredError):
        send(receiver.url())
    with socket.create_server(("127.0.0.1", 0)) as mute:
        for scheme in ("http", "https"):
            with pytest.raises(NotDeliveredError):
                send(f"{scheme}://127.0.0.1:{mute.getsockname()[1]}/")


def test_the_certificate_is_checked_against_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = tmp_path / "receiver.pem"
    certificate.write_bytes(_certificate("localhost"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with receiving(context) as receiver:
        with pytest.raises(NotDeliveredError, match="certificate verify failed"):
            send(receiver.url("https"))
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert send(receiver.url("https"), is_http_allowed=False) == 204
        with pytest.raises(NotDeliveredError, match="certificate verify failed"):
            send(receiver.url("https", "127.0.0.1"))
    assert len(receiver.got) == 1


def _certificate(name: str) -> bytes:
    """Signed by itself, with its key."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    made = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return made.sign(key, hashes.SHA256()).public_bytes(pem) + private
