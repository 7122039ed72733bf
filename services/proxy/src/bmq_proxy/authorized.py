"""Which operations a client is told that it may do. There is no authorizer: all that the resource has, as of Kafka
without one, where it asks.
"""

from typing import Final

NOT_ASKED: Final = -(2**31)
"""Also of what does not exist, or is refused."""
(
    _READ,
    _WRITE,
    _CREATE,
    _DELETE,
    _ALTER,
    _DESCRIBE,
    _CLUSTER_ACTION,
    _DESCRIBE_CONFIGS,
    _ALTER_CONFIGS,
    _IDEMPOTENT_WRITE,
) = range(3, 13)


def _bits(*operations: int) -> int:
    return sum([1 << operation for operation in operations])


ON_TOPIC: Final = _bits(_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS)
ON_CLUSTER: Final = _bits(
    _CREATE, _ALTER, _DESCRIBE, _CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE
)
