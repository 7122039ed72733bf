"""Whether the environment names the credentials that a store's URL calls for. Their values are the client library's
business.
"""

import os
from collections.abc import Mapping
from typing import Final

from bmq.errors import ConfigurationError
from bmq.runtime.store_url import StoreKind, StoreUrl

_AWS_ROLES: Final = (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
_GOOGLE: Final = (
    *(
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_SERVICE_ACCOUNT",
        "GOOGLE_SERVICE_ACCOUNT_PATH",
        "GOOGLE_SERVICE_ACCOUNT_KEY",
    ),
    "GOOGLE_BEARER_TOKEN",
)
_AZURE: Final = (
    *(
        "AZURE_STORAGE_ACCOUNT_KEY",
        "AZURE_STORAGE_ACCESS_KEY",
        "AZURE_STORAGE_SAS_TOKEN",
        "AZURE_STORAGE_SAS_KEY",
        "AZURE_STORAGE_TOKEN",
    ),
    *("AZURE_STORAGE_CLIENT_SECRET", "AZURE_CLIENT_SECRET", "AZURE_FEDERATED_TOKEN_FILE", "AZURE_USE_AZURE_CLI"),
)


def check_credentials(url: StoreUrl, *, environment: Mapping[str, str] | None = None) -> None:
    """Refuses an endpoint that is not the cloud's own where the environment names no credentials for it.

    The machine's metadata service, which would be asked next, knows nothing of that endpoint; and what it gives is not
    to be sent in plain HTTP. Raises ConfigurationError (one line).
    """
    environment = os.environ if environment is None else environment
    match url.kind:
        case StoreKind.S3:
            static_keys_given(url, environment=environment)
        case StoreKind.GCS if not url.anonymous and _in_plain_http(url) and not _any_named(_GOOGLE, environment):
            raise ConfigurationError(
                f"store {url.text}: no credentials: set GOOGLE_APPLICATION_CREDENTIALS, or add ?anonymous=true "
                "where the endpoint is an emulator"
            )
        case StoreKind.AZURE if _in_plain_http(url) and not _any_named(_AZURE, environment):
            raise ConfigurationError(f"store {url.text}: no credentials: set AZURE_STORAGE_ACCOUNT_KEY")
        case _:
            pass


def static_keys_given(url: StoreUrl, *, environment: Mapping[str, str] | None = None) -> bool:
    """Whether S3 keys stand in the environment; else they come from a role (web identity, container, instance).

    Raises ConfigurationError where an endpoint that is not AWS's own is given and neither keys nor a role are: the
    instance's metadata service, which would be asked next, knows nothing of that endpoint.
    """
    environment = os.environ if environment is None else environment
    if environment.get("AWS_ACCESS_KEY_ID") and environment.get("AWS_SECRET_ACCESS_KEY"):
        return True
    if url.endpoint is not None and not _any_named(_AWS_ROLES, environment):
        raise ConfigurationError(f"store {url.text}: no keys: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
    return False


def _in_plain_http(url: StoreUrl) -> bool:
    return url.endpoint is not None and url.endpoint.startswith("http://")


def _any_named(names: tuple[str, ...], environment: Mapping[str, str]) -> bool:
    return any(environment.get(name) for name in names)
