"""The cluster by Kafka's protocol: clients made for it, and where a partition begins and ends."""
