"""`bmq lanes`."""
