"""What each call and its answer carry: of controllers, of owners, of those who follow tails, of the admin API."""
