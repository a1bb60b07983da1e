"""The `gru4rec` model: next-item prediction with a recurrent network."""
