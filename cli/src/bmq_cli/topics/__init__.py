"""`bmq topics`."""
