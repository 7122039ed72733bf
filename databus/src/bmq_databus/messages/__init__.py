"""What applications write: messages in a request's body, and the answers to them. Pure."""
