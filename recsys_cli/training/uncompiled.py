"""Torch's optimizers without the wrappers for torch.compile, whose import takes two seconds."""

from __future__ import annotations

import inspect

import torch
from torch.optim import Optimizer


class Uncompiled(Optimizer):
    """Optimizer base with unwrapped methods; only losses are compiled here."""

    add_param_group = inspect.unwrap(Optimizer.add_param_group)
    zero_grad = inspect.unwrap(Optimizer.zero_grad)
    state_dict = inspect.unwrap(Optimizer.state_dict)
    load_state_dict = inspect.unwrap(Optimizer.load_state_dict)


class AdamW(Uncompiled, torch.optim.AdamW):
    """torch.optim.AdamW with an unwrapped step."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))
