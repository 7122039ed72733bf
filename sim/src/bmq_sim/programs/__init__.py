"""Clients that administer: each of these programs does one kind of thing to a cluster, one after the other, while
others use it.
"""
