"""What retrieval models share: the catalogue that negatives are drawn from, and losses that compare. No torch is imported here."""
