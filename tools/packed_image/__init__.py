"""Packs bmq's image without Docker: folders become layers, layers become an OCI archive, which a cluster loads."""
