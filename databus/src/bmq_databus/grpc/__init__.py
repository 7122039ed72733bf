"""How applications write by gRPC (`bmq_databus/v1/databus.proto`)."""
