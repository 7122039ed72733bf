"""What applications talk to: a plain ASGI application, so that any server runs it."""
