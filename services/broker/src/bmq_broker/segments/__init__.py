"""A partition's segments: rolled, named by manifests, read, merged, retained, collected."""
