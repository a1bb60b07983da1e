"""The `bert4rec` model: masked items predicted from both sides."""
