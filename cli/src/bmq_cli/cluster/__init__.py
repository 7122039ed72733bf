"""`bmq cluster`, and the admin API that it asks, as other commands do."""
