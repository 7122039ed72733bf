"""Versions that Kafka has and kio has yet to learn, added to what is generated from kio. Source: the message
definitions of Kafka 4.4.0.

Each goes when kio knows it: `extended` refuses to add a version that is there already.
"""

from dataclasses import dataclass
from typing import Final

import msgspec

from bmq.wire.schemas import ApiSchema, Field


@dataclass(frozen=True, slots=True, kw_only=True)
class Addition:
    """One more version of an API. New fields come at the end of their struct; `response_struct` "" is the response
    itself.
    """

    version: int
    request: tuple[Field, ...] = ()
    response_struct: str = ""
    response: tuple[Field, ...] = ()


ADDITIONS: Final = {
    18: Addition(
        version=5,
        request=(
            Field(name="cluster_id", type="string", versions=(5, 5), nullable=(5, 5), has_default=True, default=None),
            Field(name="node_id", type="int32", versions=(5, 5), has_default=True, default=-1),
        ),
    ),
    42: Addition(
        version=3,
        response_struct="results",
        response=(
            Field(
                name="error_message", type="string", versions=(3, 3), nullable=(3, 3), has_default=True, default=None
            ),
        ),
    ),
}
"""By API key: ApiVersions 5 (KIP-1242), DeleteGroups 3."""


def extended(api: ApiSchema) -> ApiSchema:
    """The schema with the version that is added, or as it is."""
    addition = ADDITIONS.get(api.key)
    if addition is None:
        return api
    newest = api.versions[1]
    assert addition.version == newest + 1, (
        f"kio has version {newest} of {api.name} by now: remove the addition of {addition.version}"
    )
    request = (*_lengthened(api.request, newest), *addition.request)
    response = _lengthened(api.response, newest)
    if addition.response_struct:
        response = tuple(
            msgspec.structs.replace(field, fields=(*field.fields, *addition.response))
            if field.name == addition.response_struct
            else field
            for field in response
        )
    else:
        response += addition.response
    return msgspec.structs.replace(
        api, versions=(api.versions[0], addition.version), request=request, response=response
    )


def _lengthened(fields: tuple[Field, ...], newest: int) -> tuple[Field, ...]:
    """What is in version `newest` is in the next one as well."""
    return tuple(
        msgspec.structs.replace(
            field,
            versions=_longer(field.versions, newest),
            nullable=None if field.nullable is None else _longer(field.nullable, newest),
            fields=_lengthened(field.fields, newest),
        )
        for field in fields
    )


def _longer(versions: tuple[int, int], newest: int) -> tuple[int, int]:
    return (versions[0], newest + 1) if versions[1] == newest else versions
