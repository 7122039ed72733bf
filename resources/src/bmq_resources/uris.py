"""Places that fields of resources name: in buckets, and servers."""

from typing import Any, Final

from bmq_resources.base import rule, rules

URI_LENGTH_MAX: Final = 1024
FOLDER_RULE: Final = "self == '' || self.matches('^s3a?://[^/?#]+(/[^?#]*)?$')"
FILE_RULE: Final = "self == '' || self.matches('^s3a?://[^/?#]+/[^?#]+$')"
HTTP_RULE: Final = "self == '' || self.matches('^https?://[^/?#]+')"


def folder(name: str) -> dict[str, Any]:
    """The rule of a field that is a folder of a bucket, for `json_schema_extra`."""
    return rules(
        rule(
            FOLDER_RULE,
            f"{name} is in a bucket, as everything that pods keep: write s3a://BUCKET or s3a://BUCKET/PREFIX",
        )
    )
