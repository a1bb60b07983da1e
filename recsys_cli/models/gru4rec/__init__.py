"""Next-item prediction with a recurrent network."""
