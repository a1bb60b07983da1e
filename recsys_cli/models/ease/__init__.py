"""The `ease` model: a linear item-item autoencoder in closed form."""
