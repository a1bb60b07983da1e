"""The `ease` model: a linear autoencoder of what users have met, in closed form."""
