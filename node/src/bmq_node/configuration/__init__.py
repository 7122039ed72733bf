"""What operators write: keys and their sources, addresses, listeners, and the reference pages made of them."""
