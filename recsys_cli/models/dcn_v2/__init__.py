"""The `dcn-v2` model: cross layers and an MLP."""
