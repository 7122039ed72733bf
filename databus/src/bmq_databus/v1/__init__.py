"""What is spoken with a sidecar by gRPC: `databus.proto`, and what protoc makes of it for Python."""
