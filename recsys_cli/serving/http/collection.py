"""Garbage collection of a server: loaded bundles stay outside, as a walk over all their objects stops every request."""

from __future__ import annotations

import gc


def exempt_from_collection() -> None:
    """Collect garbage once, and exempt what is left from later collections.

    Objects without cycles are still freed with their last reference. A full collection over the imported modules and a
    bundle took 0.13 s, and came every half second at 1,700 requests per second.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
