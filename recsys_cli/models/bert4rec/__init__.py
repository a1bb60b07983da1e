"""The `bert4rec` model: masked items by those on both sides."""
