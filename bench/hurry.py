"""What makes a process that compiles many programs faster, and none of them another."""

from __future__ import annotations

import atexit
import gc


def hurry() -> None:
    """Call it when all is imported. Leaves out what compares nothing: a fifth of small programs' time."""
    import torch._dynamo.guards

    gc.collect()
    gc.freeze()
    atexit.register(gc.unfreeze)  # what is frozen would look leaked at the end
    gc.set_threshold(10_000)  # instead of 700: Dynamo makes many objects, and few cycles
    gc.get_freeze_count = lambda: 1  # the real one counts a million objects, once a compilation
    # Empties the processor's caches to measure guards.
    torch._dynamo.guards.profile_guard_manager = lambda *_: 0.0
