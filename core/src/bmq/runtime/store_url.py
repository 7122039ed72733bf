"""What `--store URL` may say: which store, which bucket, under which prefix, reached how. Credentials never stand in a
URL.

file:///var/lib/bmq?fsync=false          a folder (see folder_store); shared=true: beside other processes that say so
too;
                                         private=false: the umask decides who else may read it
                                         ring=true: small objects of the WAL share files (`ring`)
memory://                                nothing that outlives the process
s3://bucket/prefix?endpoint=http://127.0.0.1:9000&region=us-east-1
gs://bucket/prefix?endpoint=http://127.0.0.1:4443&anonymous=true
az://container/prefix?account=NAME
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from bmq.errors import ConfigurationError
from bmq.runtime.object_key import folder_of_prefix
from bmq.runtime.store_names import UrlParts, odd_name, parts_of

DEFAULT_REGION: Final = "us-east-1"
"""What MinIO and most S3-compatible stores take. Against AWS itself the region must be named."""
_ODD: Final = re.compile(r"[\x00-\x1f\x7f#]")


class StoreKind(StrEnum):
    """The URL's scheme."""

    FILE = "file"
    MEMORY = "memory"
    S3 = "s3"
    GCS = "gs"
    AZURE = "az"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreUrl:
    """A store's URL taken apart. `prefix` is empty or ends with a slash; options that were not given have their
    defaults.
    """

    text: str
    kind: StoreKind
    bucket: str = ""
    """Bucket, or Azure's container."""
    prefix: str = ""
    folder: Path | None = None
    fsync: bool = True
    shared: bool = False
    private: bool = True
    """Folders: what is created there only its user may read."""
    ring: bool = False
    """Folders: small objects of the WAL may share files."""
    endpoint: str | None = None
    region: str = DEFAULT_REGION
    path_style: bool = False
    """S3: the bucket in the path instead of in the host name; the default where an endpoint is given."""
    unsigned_payload: bool = False
    """S3: bodies are not hashed for the signature; the default under TLS, which protects them itself."""
    ca_file: Path | None = None
    account: str | None = None
    anonymous: bool = False
    """GCS: requests carry no credentials, which emulators take."""


_OPTIONS: Final[Mapping[StoreKind, frozenset[str]]] = {
    StoreKind.FILE: frozenset(("fsync", "shared", "private", "ring")),
    StoreKind.MEMORY: frozenset(),
    StoreKind.S3: frozenset(("endpoint", "region", "path_style", "unsigned_payload", "ca_file")),
    StoreKind.GCS: frozenset(("endpoint", "anonymous", "ca_file")),
    StoreKind.AZURE: frozenset(("endpoint", "account", "ca_file")),
}


def parse_store_url(text: str, *, environment: Mapping[str, str] | None = None) -> StoreUrl:
    """Takes a URL apart; `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL`, `AWS_REGION`, `AWS_DEFAULT_REGION` and
    `AZURE_STORAGE_ACCOUNT_NAME` fill gaps.

    Raises ConfigurationError: one line that names the part, its value and the remedy.
    """
    environment = os.environ if environment is None else environment
    try:
        url = parts_of(text)
    except ValueError as error:
        raise _refused(_without_secrets(text), "address", str(error), "write it as docs/stores.md does") from None
    try:
        kind = StoreKind(url.scheme)
    except ValueError:
        raise _refused(text, "scheme", url.scheme, "use file, memory, s3, gs or az") from None
    options = _known_options(text, kind, url.options)
    if "@" in url.bucket:
        raise _refused(
            _without_secrets(text), "credentials", "…", "give them by environment variables instead (docs/stores.md)"
        )
    # What is behind # is no part of a URL's path, and control characters are passed over:
    # another store would be opened than the one that was named.
    if odd := _ODD.search(text):
        raise _refused(repr(text)[1:-1], "character", odd[0], "leave it out; a folder's name may have %23 for #")
    match kind:
        case StoreKind.FILE:
            if url.bucket or not url.path:
                raise _refused(text, "folder", url.bucket + url.path, "write file:///absolute/folder")
            fsync, shared = (
                _switch(text, options, "fsync", default=True),
                _switch(text, options, "shared", default=False),
            )
            private, ring = (
                _switch(text, options, "private", default=True),
                _switch(text, options, "ring", default=False),
            )
            return StoreUrl(
                text=text,
                kind=kind,
                folder=Path(unquote(url.path)),
                fsync=fsync,
                shared=shared,
                private=private,
                ring=ring,
            )
        case StoreKind.MEMORY:
            return StoreUrl(text=text, kind=kind)
        case StoreKind.S3 | StoreKind.GCS | StoreKind.AZURE:
            return _bucket_url(text, kind, url, environment=environment)


def _bucket_url(text: str, kind: StoreKind, url: UrlParts, *, environment: Mapping[str, str]) -> StoreUrl:
    options = url.options
    if not url.bucket:
        raise _refused(text, "bucket", "", f"write {kind}://BUCKET/PREFIX")
    stripped = url.path.strip("/")
    prefix = f"{stripped}/" if stripped else ""
    try:
        folder_of_prefix(prefix)
    except ValueError:
        raise _refused(text, "prefix", stripped, "use letters, digits, - _ . = + @ ~, and / between parts") from None
    ca_file = Path(options["ca_file"]) if "ca_file" in options else None
    if ca_file is not None and not ca_file.is_file():
        raise _refused(text, "ca_file", str(ca_file), "name a file of PEM certificates")
    endpoint = options.get("endpoint")
    region = DEFAULT_REGION
    if kind is StoreKind.S3:
        endpoint = endpoint or environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
        given = options.get("region") or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
        if not given and endpoint is None:
            raise _refused(text, "region", "", "add ?region=… or set AWS_REGION")
        region = given or DEFAULT_REGION
    account = None
    if kind is StoreKind.AZURE:
        account = options.get("account") or environment.get("AZURE_STORAGE_ACCOUNT_NAME")
        if account is None:
            raise _refused(text, "account", "", "add ?account=… or set AZURE_STORAGE_ACCOUNT_NAME")
    if endpoint == "":
        raise _refused(text, "endpoint", "", "write http://HOST:PORT or https://HOST:PORT")
    odd = odd_name(kind, bucket=url.bucket, endpoint=endpoint or "", account=account or "", region=region)
    if odd is not None:
        secret = "@" in odd.value  # who writes one there may write a password before it
        raise _refused(text.partition("?")[0] if secret else text, odd.part, "…" if secret else odd.value, odd.remedy)
    secure = endpoint is None or endpoint.startswith("https://")
    return StoreUrl(
        text=text,
        kind=kind,
        bucket=url.bucket,
        prefix=prefix,
        endpoint=endpoint,
        region=region,
        path_style=_switch(text, options, "path_style", default=endpoint is not None),
        unsigned_payload=_switch(text, options, "unsigned_payload", default=secure),
        ca_file=ca_file,
        account=account,
        anonymous=_switch(text, options, "anonymous", default=False),
    )


def _known_options(text: str, kind: StoreKind, options: Mapping[str, str]) -> Mapping[str, str]:
    for name, value in options.items():
        if name not in _OPTIONS[kind]:
            known = ", ".join(sorted(_OPTIONS[kind])) or "none"
            shown = "…" if "key" in name or "secret" in name or "token" in name else value
            raise _refused(text.partition("?")[0], name, shown, f"{kind}:// has the options {known}")
    return options


def _switch(text: str, options: Mapping[str, str], name: str, *, default: bool) -> bool:
    match options.get(name):
        case None:
            return default
        case "true":
            return True
        case "false":
            return False
        case value:
            raise _refused(text, name, value, "write true or false")


def _without_secrets(text: str) -> str:
    scheme, _, rest = text.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


def _refused(text: str, part: str, value: str, remedy: str) -> ConfigurationError:
    return ConfigurationError(f"store {text}: {part} {value!r} cannot be used: {remedy}")
