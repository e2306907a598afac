"""What `mpget` accepts as a Metalink and as a path, and how it refuses the rest."""

from __future__ import annotations

import pytest

from multipath import UsageError
from multipath.__main__ import main, target
from multipath.paths import MAX_DOCUMENT_BYTES, MAX_PATHS, Path, Pieces, candidates, parse_metalink
from tests.cases import case

HEAD = '<metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name="a.iso">'
TAIL = "</file></metalink>"
SHA1, SHA256 = "1" * 40, "ab" * 32
U1, U2 = "http://192.0.2.1/a.iso", "https://mirror.example.org/a.iso?x=1"


def test_a_metalink_gives_mirrors_by_priority_and_the_strongest_hashes() -> None:
    document = (
        f"{HEAD}<size> 25 </size><hash type='md5'>{'0' * 32}</hash><hash type='sha-1'>{SHA1}</hash>"
        f"<hash type='sha-256'>\n {SHA256.upper()} </hash><pieces length='10' type='sha-1'>{f'<hash>{SHA1}</hash>' * 3}"
        f"</pieces><url>http://last/</url><url priority='2'>{U2}</url><url priority='1' location='ch'>\n{U1}\n</url>"
        f"<url priority='3'>ftp://192.0.2.1/a.iso</url><metaurl mediatype='torrent'>x</metaurl>{TAIL}"
    )
    found = parse_metalink(document.encode())
    assert found.mirrors == (U1, U2, "http://last/")
    assert (found.name, found.size, found.whole) == ("a.iso", 25, ("sha256", SHA256))
    assert found.pieces == Pieces(10, "sha1", (SHA1,) * 3)
    assert parse_metalink((HEAD + TAIL).encode()).pieces is None


ENTITIES = '<!DOCTYPE lol [<!ENTITY a "aaaaaaaa"><!ENTITY b "&a;&a;&a;">]>' + HEAD + "<url>&b;</url>" + TAIL
REFUSED = {
    "entities": (ENTITIES, "has a DTD ('lol')"),
    "external DTD": (f'<!DOCTYPE m SYSTEM "file:///etc/passwd">{HEAD}{TAIL}', "has a DTD"),
    "unknown entity": (f"{HEAD}<url>&x;</url>{TAIL}", "is not XML"),
    "Metalink 3": ('<metalink xmlns="http://www.metalinker.org/"><files/></metalink>', "Metalink 4 with one file"),
    "two files": (HEAD + "</file><file name='b'>" + TAIL, "with 2 files: mpget reads Metalink 4 with one file"),
    "10 000 mirrors": (HEAD + f"<url>{U1}</url>" * 10_000 + TAIL, f"10000 mirrors; at most {MAX_PATHS} are tried"),
    "too large": (HEAD + " " * MAX_DOCUMENT_BYTES + TAIL, "larger than 8388608 bytes"),
    "size": (f"{HEAD}<size>-1</size>{TAIL}", "<size> in the Metalink is '-1'"),
    "priority": (f"{HEAD}<url priority='x'>{U1}</url>{TAIL}", "The priority of a <url>"),
    "short hash": (f"{HEAD}<hash type='sha-256'>{SHA1}</hash>{TAIL}", "sha-256 has 64 hexadecimal digits"),
    "pieces of 0 bytes": (f"{HEAD}<size>1</size><pieces length='0' type='sha-1'/>{TAIL}", "0 pieces of 0 bytes"),
    "too few pieces": (
        f"{HEAD}<size>25</size><pieces length='10' type='sha-1'><hash>{SHA1}</hash></pieces>{TAIL}",
        "1 pieces of 10 bytes for a file of 25",
    ),
    "a URL with a password": (f"{HEAD}<url>http://u:p@192.0.2.1/</url>{TAIL}", "has a user name"),
}  # fmt: skip


def test_other_documents_are_refused_with_the_reason(subtests: pytest.Subtests) -> None:
    for name, (document, words) in REFUSED.items():
        with case(subtests, name), pytest.raises(UsageError) as refused:
            parse_metalink(document.encode())
        assert words in str(refused.value), name


def test_paths_are_read_and_given_twice_they_are_one() -> None:
    given = [f"192.0.2.2>{U1}", f"2001:db8:0::2>{U1}", f"dev=tun0>{U1}", f"proxy=http://[::1]:3128>{U2}", f"{U1}#x", U1]
    found, twice = candidates(given, [])
    assert found == [
        Path(U1, source="192.0.2.2"), Path(U1, source="2001:db8::2"), Path(U1, device="tun0"),
        Path(U2, proxy=("::1", 3128)), Path(U1),
    ]  # fmt: skip
    assert twice == [Path(U1)]
    assert [str(one) for one in found[2:4]] == [f"dev tun0 > {U1}", f"proxy ::1:3128 > {U2}"]


def test_a_path_without_url_takes_every_mirror_and_without_paths_the_mirrors_are_the_paths() -> None:
    assert candidates(["dev=tun0", f"192.0.2.2>{U1}"], [U1, U2])[0] == [
        Path(U1, device="tun0"), Path(U2, device="tun0"), Path(U1, source="192.0.2.2"),
    ]  # fmt: skip
    assert candidates([], [U1, U2])[0] == [Path(U1), Path(U2)]


BAD_PATHS = {
    "nothing": ([], "There are 0 paths. Give 1 to 64"),
    "too many": ([f"192.0.2.2>http://192.0.2.1/{one}" for one in range(65)], "There are 65 paths"),
    "no URL": (["192.0.2.2"], "has no URL"),
    "no source": ([f">{U1}"], "'' is not a source"),
    "device": ([f"dev=averyveryverylongname>{U1}"], "is not a device"),
    "proxy": ([f"proxy=https://192.0.2.9>{U1}"], "is not an HTTP proxy"),
    "line break": (["http://192.0.2.1/a\r\nX: y"], "is not a URL"),
    "port": (["http://192.0.2.1:99999/a"], "is not a URL"),
    "password": (["http://u:p@192.0.2.1/a"], "has a user name"),
}


def test_other_paths_are_refused_with_the_remedy(subtests: pytest.Subtests) -> None:
    for name, (given, words) in BAD_PATHS.items():
        with case(subtests, name), pytest.raises(UsageError) as refused:
            candidates(given, [])
        assert words in str(refused.value), name


def test_the_command_refuses_numbers_and_names_that_it_cannot_use(
    subtests: pytest.Subtests, capsys: pytest.CaptureFixture[str]
) -> None:
    table = {
        "--max-paths 0": "--max-paths is '0'. Choose 1 to 64.",
        "--min-weight x": "--min-weight is 'x'. Choose 0 to 100.",
        "--slot nan": "--slot is 'nan'.",
        "--metalink /nonexistent": "The Metalink /nonexistent cannot be read: [Errno 2]",
    }
    for options, words in table.items():
        with case(subtests, options):
            assert main(["--path", U1, *options.split()]) == 2
            assert words in capsys.readouterr().err
    for name in ("", "..", "a/b", "a\x1b[2J"):
        with case(subtests, f"name {name!r}"), pytest.raises(UsageError):
            target(name)
