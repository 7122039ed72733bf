"""Lanes at the proxy's edge: the handlers of a lane see a cluster that has nothing but what the lane's clients may see
(docs/lanes.md).
"""
