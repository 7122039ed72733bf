"""A simulated cluster: nodes that run what `bmq server` runs, what goes wrong with them, and what they were doing when
it did.
"""
