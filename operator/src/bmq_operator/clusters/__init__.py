"""Clusters: controllers, brokers and proxies over one store."""
