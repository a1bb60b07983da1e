"""Serving: row encoder, bundles, recommendations on request, exports and the HTTP server."""
