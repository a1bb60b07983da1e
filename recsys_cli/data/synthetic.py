"""Synthetic ratings in MovieLens's own file layout, at any size, with the AUC that the best possible model would reach."""
