"""Figures of bmq against Apache Kafka on this machine: `make bench`. docs/performance.md explains each."""
