"""Connections of servers that speak HTTP/1.1: what one of them may have of the event loop, however it sends."""
