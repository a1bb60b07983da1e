"""How to compute a feature plan: the only code that knows dataframes."""
