"""`bmq debug`."""
