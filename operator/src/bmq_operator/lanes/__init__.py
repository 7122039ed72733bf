"""Lanes: a lane of a Cluster with proxies and brokers of its own."""
