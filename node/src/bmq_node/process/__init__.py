"""What a process has whatever its roles: its start, its sockets and files, its end."""
