"""Which keys of the store's Secret a pod needs, and under which variables: by what the store speaks. Pure."""

from dataclasses import dataclass

from bmq_resources.cluster import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreKey:
    """One key of the Secret."""

    variable: str
    """That bmq reads."""
    key: str
    field: str
    """The field of store.credentials where another key, or another Secret, is named."""


def store_keys(store: Store) -> list[StoreKey]:
    """Empty where the pods' own identity is what the store knows, and for a MinIO of the Cluster's own."""
    credentials = store.credentials
    if store.minio.embedded or not credentials.secret_name:
        return []
    match store.url.partition("://")[0]:
        case "gs":
            return [_named_like_it("GOOGLE_SERVICE_ACCOUNT_KEY")]
        case "az":
            return [_named_like_it("AZURE_STORAGE_ACCOUNT_KEY")]
        case _:
            return [
                StoreKey(variable="AWS_ACCESS_KEY_ID", key=credentials.access_key_id_key, field="accessKeyIdKey"),
                StoreKey(
                    variable="AWS_SECRET_ACCESS_KEY", key=credentials.secret_access_key_key, field="secretAccessKeyKey"
                ),
            ]


def _named_like_it(variable: str) -> StoreKey:
    return StoreKey(variable=variable, key=variable, field="secretName")
