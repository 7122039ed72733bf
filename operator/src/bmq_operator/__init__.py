"""The Kubernetes operator: brings what is there to what Cluster, Topic and Lane resources say."""
