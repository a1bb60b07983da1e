"""What models share that read a user's items in the order of time. It is no model itself."""
