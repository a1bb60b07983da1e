"""What ranking models share: columns and embeddings, linear parts, products and towers. No torch is imported here."""
