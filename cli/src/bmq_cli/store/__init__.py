"""`bmq store`."""
