"""What can be set, of the cluster, of topics, of a process's limits: names, defaults, bounds."""
