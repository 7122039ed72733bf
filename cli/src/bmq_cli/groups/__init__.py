"""`bmq groups`."""
