"""Messages on their way to a cluster, by librdkafka."""
