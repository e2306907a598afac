"""Who can write to Redis can make the service slower, and not run anything in it."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path

import pytest
from django.conf import settings
from django.core.cache import cache
from pytest_django import Settings

from scionlab.delivery.render import config_for
from scionlab.delivery.signing import signing_keys_rewrap
from scionlab.platform import redis_client
from scionlab.platform.secrets_box import opened
from scionlab.platform.signed_cache import ForgedValueError
from scionlab.testbed.models import Host
from tests.cases import table

pytestmark = pytest.mark.skipif(not settings.REDIS_URL, reason="needs Redis (REDIS_URL)")


class Harm:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> object:
        return Path.touch, (self.path,)


def test_a_pickle_of_somebody_else_is_not_read(host: Host, tmp_path: Path) -> None:
    cache.clear()
    rendered = config_for(host)
    redis = redis_client.client()
    (stored,) = list(redis.keys("*config:*"))
    redis.set(stored, pickle.dumps(Harm(tmp_path / "harm")))
    assert config_for(host) == rendered
    assert not (tmp_path / "harm").exists()
    kept = pickle.loads(redis.get(stored)[32:])  # noqa: S301  rendered anew, by us
    assert opened(kept.content.decode(), "") == rendered.content


def test_whoever_reads_the_cache_learns_no_key_and_no_secret(host: Host, settings: Settings) -> None:
    cache.clear()
    rendered = config_for(host)
    (stored,) = list(redis_client.client().keys("*config:*"))
    kept = pickle.loads(redis_client.client().get(stored)[32:])  # noqa: S301  ours
    with pytest.raises(gzip.BadGzipFile):
        gzip.decompress(kept.content)
    assert host.secret.encode() in gzip.decompress(opened(kept.content.decode(), ""))
    assert host.secret not in repr(kept)
    assert config_for(host) == rendered


def test_what_was_kept_with_another_signing_secret_is_rendered_anew(host: Host, settings: Settings) -> None:
    cache.clear()
    rendered = config_for(host)
    kept = dict.fromkeys(redis_client.client().keys("*config:*"))
    settings.SIGNING_SECRET_FALLBACKS = (settings.SIGNING_SECRET,)
    settings.SIGNING_SECRET = "a new secret of the service, long enough"
    signing_keys_rewrap()
    settings.SIGNING_SECRET_FALLBACKS = ()
    assert config_for(host) == rendered
    assert list(redis_client.client().keys("*config:*")) == list(kept)


@table("value", [b"", b"x", b"\x80\x04N.", b"0" * 5000])
def test_what_is_not_signed_is_an_error_of_redis(value: bytes) -> None:
    redis_client.client().set(cache.make_key("x"), value)
    with pytest.raises(ForgedValueError):
        cache.get("x")
