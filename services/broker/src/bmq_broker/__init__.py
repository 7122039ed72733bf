"""The broker: owns partitions, makes what is written durable, and hosts the coordinators."""
