"""HTTP server: JSON verbs, the Open Inference Protocol, feedback, metrics and the page."""
