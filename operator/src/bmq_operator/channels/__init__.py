"""Channels: names of Databus that a Cluster has, and its sidecars follow."""
