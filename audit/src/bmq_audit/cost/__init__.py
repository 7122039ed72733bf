"""What a store costs, and whose bytes the objects hold that topics share."""
