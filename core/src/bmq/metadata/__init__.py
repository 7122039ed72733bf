"""The cluster's metadata: records in a flat log, and the image that they fold into. Pure."""
