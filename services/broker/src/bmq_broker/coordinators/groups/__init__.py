"""Classic consumer groups: a pure machine over the records of `__consumer_offsets`, and the shard that runs it."""
