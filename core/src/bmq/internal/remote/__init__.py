"""Roles that live elsewhere, as those here see them."""
