"""A linear item-item autoencoder in closed form."""
