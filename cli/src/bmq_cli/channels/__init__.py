"""`bmq channels`."""
