"""Torch's optimizers without torch's compiler. Their methods load it only to be left out of it, and that takes two seconds."""

from __future__ import annotations

import inspect

import torch
from torch.optim import Optimizer


class Uncompiled(Optimizer):
    """An optimizer with the methods that torch wraps for its compiler as they are inside: what is compiled here is losses."""

    add_param_group = inspect.unwrap(Optimizer.add_param_group)
    zero_grad = inspect.unwrap(Optimizer.zero_grad)
    state_dict = inspect.unwrap(Optimizer.state_dict)
    load_state_dict = inspect.unwrap(Optimizer.load_state_dict)


class AdamW(Uncompiled, torch.optim.AdamW):
    """Torch's, which makes its steps without gradients of its own."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))
