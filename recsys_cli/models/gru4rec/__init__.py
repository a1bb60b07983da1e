"""The `gru4rec` model: the next item by a recurrent network."""
