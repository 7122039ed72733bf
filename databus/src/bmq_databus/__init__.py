"""Databus: the sidecar that takes messages by HTTP or gRPC beside an application and writes them to a cluster by Kafka.

A request's body becomes messages (`messages`), by a channel's rules (`channels`), which are produced at once or first
put into a spool on disk (`spool`, `producing`); `http` and `grpc` are what applications talk to, `requests` what both
need. It knows a cluster by its Kafka address alone. `client` is for applications in Python.
"""
