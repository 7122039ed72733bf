"""`bmq produce` and `bmq consume`."""
