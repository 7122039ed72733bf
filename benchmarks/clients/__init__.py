"""Clients that load a server: the Java tools of Kafka, librdkafka, kcat, and one on bare sockets for latencies."""
