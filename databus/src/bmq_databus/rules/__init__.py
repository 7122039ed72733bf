"""What a channel may say of its messages, each rule by itself. Pure; `bmq_databus.channels.steps` has their order."""
