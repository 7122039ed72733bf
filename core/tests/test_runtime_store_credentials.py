"""Without credentials an endpoint of one's own is refused at once: no metadata service knows it, and no token is sent
to it in plain HTTP.
"""

import pytest

from bmq.errors import ConfigurationError
from bmq.runtime.store_credentials import check_credentials
from bmq.runtime.store_url import parse_store_url

PLAIN = "endpoint=http://127.0.0.1:1"
TLS = "endpoint=https://127.0.0.1:1"


def check(url: str, **environment: str) -> None:
    check_credentials(parse_store_url(url, environment={}), environment=environment)


@pytest.mark.parametrize(
    ("url", "remedy"),
    [
        (f"s3://bucket?{PLAIN}", "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        (f"s3://bucket?{TLS}", "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        (f"gs://bucket?{PLAIN}", "set GOOGLE_APPLICATION_CREDENTIALS, or add ?anonymous=true"),
        (f"az://container?account=mine&{PLAIN}", "set AZURE_STORAGE_ACCOUNT_KEY"),
    ],
)
def test_an_endpoint_without_credentials_is_refused_with_the_remedy(url: str, remedy: str) -> None:
    with pytest.raises(ConfigurationError, match=r"no (keys|credentials): ") as raised:
        check(url)
    assert remedy in str(raised.value)
    assert "\n" not in str(raised.value)


def test_credentials_of_any_kind_are_left_to_the_store() -> None:
    check(f"s3://bucket?{PLAIN}", AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b")
    check(f"s3://bucket?{PLAIN}", AWS_WEB_IDENTITY_TOKEN_FILE="/token")
    check(f"gs://bucket?{PLAIN}", GOOGLE_SERVICE_ACCOUNT_KEY="{}")
    check(f"gs://bucket?{PLAIN}&anonymous=true")
    check(f"az://container?account=mine&{PLAIN}", AZURE_STORAGE_SAS_TOKEN="sv=1")


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket?region=eu-1",
        "gs://bucket",
        "az://container?account=mine",
        f"gs://bucket?{TLS}",
        "memory://",
        "file:///x",
    ],
)
def test_the_clouds_own_endpoints_may_rely_on_the_machines_identity(url: str) -> None:
    check(url)
