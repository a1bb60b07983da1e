"""Several processes that train one model: how they are started, meet, share gradients, and fail together."""
