"""A cluster's admin REST API (docs/admin-api.md) as those use it who are no node of it: commands and the operator."""
