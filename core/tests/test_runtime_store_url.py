"""What `--store` takes, and the one line that says what is wrong with what it does not take."""

from pathlib import Path

import pytest

from bmq.errors import ConfigurationError
from bmq.runtime.store_url import StoreKind, parse_store_url


def test_a_minio_url_has_path_style_plain_http_and_a_region() -> None:
    url = parse_store_url("s3://bucket/some/prefix?endpoint=http://127.0.0.1:9000", environment={})
    assert (url.kind, url.bucket, url.prefix, url.endpoint) == (
        StoreKind.S3,
        "bucket",
        "some/prefix/",
        "http://127.0.0.1:9000",
    )
    assert (url.region, url.path_style, url.unsigned_payload) == ("us-east-1", True, False)


def test_an_aws_url_has_virtual_hosts_tls_and_its_region_from_the_environment() -> None:
    url = parse_store_url("s3://bucket", environment={"AWS_REGION": "eu-central-1"})
    assert (url.prefix, url.endpoint, url.region, url.path_style, url.unsigned_payload) == (
        "",
        None,
        "eu-central-1",
        False,
        True,
    )


def test_the_url_goes_before_the_environment() -> None:
    environment = {"AWS_ENDPOINT_URL": "http://env:1", "AWS_REGION": "env"}
    assert parse_store_url("s3://bucket", environment=environment).endpoint == "http://env:1"
    url = parse_store_url("s3://bucket?endpoint=https://given:2&region=given&path_style=false", environment=environment)
    assert (url.endpoint, url.region, url.path_style) == ("https://given:2", "given", False)


def test_folders_and_the_other_clouds() -> None:
    assert parse_store_url("file:///var/lib/b%20mq?fsync=false").folder == Path("/var/lib/b mq")
    assert parse_store_url("file:///x?fsync=false").fsync is False
    assert [parse_store_url(f"file:///x{option}").shared for option in ("", "?shared=true")] == [False, True]
    assert parse_store_url("memory://").kind is StoreKind.MEMORY
    assert parse_store_url("gs://bucket/p", environment={}).prefix == "p/"
    emulated = parse_store_url("gs://bucket?endpoint=http://127.0.0.1:4443&anonymous=true", environment={})
    assert (emulated.endpoint, emulated.anonymous) == ("http://127.0.0.1:4443", True)
    assert parse_store_url("gs://bucket", environment={"AWS_ENDPOINT_URL": "http://env:1"}).endpoint is None
    azure = parse_store_url("az://container/p?account=mine", environment={})
    assert (azure.kind, azure.bucket, azure.account) == (StoreKind.AZURE, "container", "mine")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ftp://host", "scheme 'ftp' cannot be used: use file, memory, s3, gs or az"),
        ("/just/a/path", "scheme '' cannot be used"),
        ("s3:///prefix", "bucket '' cannot be used: write s3://BUCKET/PREFIX"),
        ("s3://bucket", "region '' cannot be used: add ?region=… or set AWS_REGION"),
        ("s3://bucket?endpoint=127.0.0.1:9000", "endpoint '127.0.0.1:9000' cannot be used: write http://HOST:PORT"),
        ("s3://bucket/../x?region=r", "prefix '../x' cannot be used"),
        ("s3://bucket?region=r&path_style=yes", "path_style 'yes' cannot be used: write true or false"),
        ("s3://bucket?regoin=r", "regoin 'r' cannot be used: s3:// has the options ca_file, endpoint"),
        ("s3://bucket?region=r&ca_file=/no/such", "ca_file '/no/such' cannot be used: name a file of PEM certificates"),
        ("gs://bucket?region=r", "region 'r' cannot be used: gs:// has the options anonymous, ca_file, endpoint"),
        ("file://relative/folder", "folder 'relative/folder' cannot be used: write file:///absolute/folder"),
        ("s3://bucket/a#b?region=r", "character '#' cannot be used: leave it out; a folder's name may have %23 for #"),
        ("s3://bucket/a\nb?region=r", "store s3://bucket/a\\nb?region=r: character '\\n' cannot be used: leave it out"),
        ("file:///var/lib/bmq#2", "character '#' cannot be used"),
        ("az://container", "account '' cannot be used: add ?account=… or set AZURE_STORAGE_ACCOUNT_NAME"),
    ],
)
def test_a_bad_url_names_part_value_and_remedy_in_one_line(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse_store_url(text, environment={})
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("text", ["s3://AKIA:hidden@bucket?region=r", "s3://bucket?region=r&secret_access_key=hidden"])
def test_a_secret_in_a_url_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse_store_url(text, environment={})
    assert "hidden" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("az://bkt/p?account=evil.example/x", "account 'evil.example/x' cannot be used: write the storage account's"),
        ("az://bkt/p?account=evil.example%23", "account 'evil.example#' cannot be used"),
        ("az://bkt/p?account=evil.example%5Cx", "account 'evil.example\\\\x' cannot be used"),
        ("az://bkt/p?account=Mine", "account 'Mine' cannot be used"),
        (
            "az://bkt?account=mine&endpoint=https://evil.example\\@x.blob.core.windows.net",
            "endpoint '…' cannot be used",
        ),
        (
            "az://bkt?account=mine&endpoint=https://evil.example%5C.x.net",
            "endpoint 'https://evil.example\\\\.x.net' cannot",
        ),
        (
            "gs://bkt/p?endpoint=https://evil.example\\@storage.googleapis.com",
            "endpoint '…' cannot be used: write http",
        ),
        ("gs://bkt/p?endpoint=https://evil.example?x=.googleapis.com", "endpoint 'https://evil.example?x"),
        ("gs://bkt/p?endpoint=https://evil.example%23.googleapis.com", "endpoint 'https://evil.example#"),
        ("gs://bkt/p?endpoint=https:evil.example", "endpoint 'https:evil.example' cannot be used"),
        ("gs://bkt/p?endpoint=https:///evil.example", "endpoint 'https:///evil.example' cannot be used"),
        ("gs://bkt/p?endpoint=HTTP://evil.example", "endpoint 'HTTP://evil.example' cannot be used"),
        ("gs://bkt/p?endpoint=https://h%09ost", "cannot be used"),
        ("gs://bkt/p?endpoint=https://ﬁle.example", "endpoint 'https://ﬁle.example' cannot be used"),
        ("gs://bkt/p?endpoint=", "endpoint '' cannot be used: write http://HOST:PORT"),
        ("s3://bkt?region=x%40evil.example/", "region '…' cannot be used: write a region's name"),
        ("s3://bkt?region=evil.example/x", "region 'evil.example/x' cannot be used"),
        ("s3://bkt?region=r&endpoint=http://evil.example:9000%5C@minio:9000", "endpoint '…' cannot be used"),
        ("s3://evil.example\\x?region=r", "bucket 'evil.example\\\\x' cannot be used: use letters, digits, - _ and ."),
        ("s3://evil.example:1?region=r", "bucket 'evil.example:1' cannot be used"),
        ("s3://[b?region=r", "address 'Invalid IPv6 URL' cannot be used: write it as docs/stores.md does"),
    ],
)
def test_what_parsers_of_urls_read_differently_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse_store_url(text, environment={})
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "environment"),
    [
        ("s3://bkt", {"AWS_REGION": "evil.example/x"}),
        ("s3://bkt", {"AWS_ENDPOINT_URL": "http://evil.example\\@minio"}),
        ("az://bkt", {"AZURE_STORAGE_ACCOUNT_NAME": "evil.example/x"}),
    ],
)
def test_what_the_environment_fills_in_is_held_to_the_same(text: str, environment: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="cannot be used"):
        parse_store_url(text, environment=environment)


@pytest.mark.parametrize(
    "text",
    [
        "s3://my.bucket-1?region=eu-central-1",
        "s3://Old_Bucket?region=us-east-1",
        "s3://b?endpoint=http://127.0.0.1:9000/",
        "s3://b?endpoint=http://[fd00::1]:9000",
        "s3://b?endpoint=https://my_minio.storage.svc.cluster.local.:443/s3",
        "gs://bucket?endpoint=https://storage.googleapis.com",
        "az://container?account=devstoreaccount1&endpoint=http://127.0.0.1:10000/devstoreaccount1",
        "az://$web?account=a1b",
    ],
)
def test_addresses_as_stores_have_them_are_taken(text: str) -> None:
    assert parse_store_url(text, environment={}).text == text


def test_a_password_in_an_endpoint_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse_store_url("s3://bucket?endpoint=https://me:hidden@minio:9000", environment={})
    assert "hidden" not in str(raised.value)
