"""Which partition of `__consumer_offsets` a group lives in. Kafka's own formula, so that its tools find a group's records."""


def java_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 code units, a signed 32-bit integer."""
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(encoded), 2):
        value = (31 * value + (encoded[i] << 8 | encoded[i + 1])) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


def partition_of_group(group_id: str, partitions: int) -> int:
    """Utils.abs(hashCode) % partitions, where the absolute value of the smallest integer is 0."""
    value = java_hash(group_id)
    return (0 if value == -0x8000_0000 else abs(value)) % partitions
