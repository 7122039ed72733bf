"""The Kubernetes operator: brings what is there to what Cluster, Topic, Lane and ParquetSink resources say."""
