"""Names that people and clients choose: topics, lanes, listeners, the partition of a group, tokens of requests."""
