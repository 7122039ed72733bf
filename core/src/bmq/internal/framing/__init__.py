"""What goes over a connection between nodes: frames and what is packed in them, greetings, refusals, the names of
calls.
"""
