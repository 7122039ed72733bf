"""`bmq up` and `bmq server`: from options to what bmq_node runs."""
