"""The `ials` model: matrix factorization of implicit feedback by alternating least squares, with the library `implicit`."""
