"""The coordinators of groups that a broker hosts, on the log of an internal partition."""
