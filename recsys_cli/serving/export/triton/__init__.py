"""Model repositories for the Triton Inference Server: a bundle with a model that scores rows and one that recommends items."""
