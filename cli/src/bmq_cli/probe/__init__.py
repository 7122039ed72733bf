"""`bmq probe`."""
