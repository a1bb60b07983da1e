"""Out-of-fold collaborative features of (user, item) rows, for any ranking model. No torch is imported here."""
