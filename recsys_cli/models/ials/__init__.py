"""Matrix factorization of implicit feedback by alternating least squares, with the library `implicit`."""
