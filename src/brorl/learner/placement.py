"""Tensors that may be shards: a parameter of a sharded model holds this rank's rows only (a DTensor)."""

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor


def full(tensor: Tensor) -> Tensor:
    """The whole tensor on every rank (all ranks must ask); a tensor that is no shard is returned itself."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


@torch.no_grad()
def placed_like(tensor: Tensor, parameter: Tensor) -> Tensor:
    """A whole tensor in the dtype and on the device of `parameter`, cut as it is; every rank must hold it."""
    if not isinstance(parameter, DTensor):
        return tensor.to(parameter)
    whole = tensor.to(dtype=parameter.dtype, device=parameter.device)
    # With no source rank each rank keeps its own rows, and nothing is sent.
    return distribute_tensor(whole, parameter.device_mesh, parameter.placements, src_data_rank=None)
