"""`bmq apply`."""
