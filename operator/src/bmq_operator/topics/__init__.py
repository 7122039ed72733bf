"""Topics: a Kafka topic of a Cluster, kept as its resource says."""
