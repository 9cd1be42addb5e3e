"""The learner on several ranks: parameters, gradients and optimizer state sharded with FSDP2.

Every rank makes the same calls with the same groups, and works on its own run of their nodes: a node belongs to one
rank, so the sum over ranks is the sum over nodes, and a large group may be cut between ranks. Gradients are summed,
not averaged: the weights of a batch are fixed before it is split. Whoever has fewer micro-batches runs empty ones, so
that all ranks meet in the same collectives.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from transformers import PreTrainedModel

from brorl.errors import ModelError
from brorl.group import Floats, RolloutGroup
from brorl.learner.learner import Learner, LearnerSettings, out_of_memory
from brorl.learner.logprobs import node_logprobs
from brorl.learner.objective import NodeTensors, Objective, add_metrics
from brorl.learner.placement import full
from brorl.learner.tree import MicroBatch, empty_batch, micro_batches

Result = TypeVar("Result")


class _NodeLogprobs(nn.Module):
    """The root that FSDP wraps: decoder and output layer are called apart, and stay gathered from one to the other."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: MicroBatch, temperature: float, logit_rows: int) -> tuple[Tensor, Tensor]:
        return node_logprobs(self.model, batch, temperature, logit_rows=logit_rows)


class ShardedLearner(Learner):
    """One rank of a learner; every method is called on all ranks of the mesh alike, with the same arguments.

    The same learner as `Learner` in everything but where tensors lie: `trainable`, `optimizer_tensors` and `reference`
    hold shards. With a compute dtype the gathered weights have it, and gradients are summed in float32.

    Raises:
        ModelError: LoRA; gradient checkpointing for a model with dropout.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        settings: LearnerSettings | None = None,
        *,
        mesh: DeviceMesh,
        cpu_offload: bool = False,
    ) -> None:
        """Shard a model that every rank holds whole.

        Args:
            model: the same weights on every rank.
            settings: how to train.
            mesh: one dimension of ranks, on CPUs or on GPUs (the current device of each rank).
            cpu_offload: shards, gradients and optimizer state rest in the memory of the host; needs GPUs, and a process
                group that speaks gloo beside NCCL ("cpu:gloo,cuda:nccl").
        """
        if settings is not None and settings.lora is not None:
            raise ModelError(
                "model.lora cannot be trained on several ranks: start one process, or drop model.lora to train the "
                "whole model"
            )
        super().__init__(model, settings)
        self.mesh, self._offload = mesh, CPUOffloadPolicy() if cpu_offload else OffloadPolicy()
        if mesh.device_type == "cuda":
            self.device = torch.device("cuda", torch.cuda.current_device())
        self._policy_root = self._sharded(self.model)
        self._reference_root = None if self.reference is None else self._sharded(self.reference)
        self.clear_optimizer()  # the one before holds the whole parameters

    @property
    def rank(self) -> int:
        """Among the ranks of the mesh."""
        return self.mesh.get_local_rank()

    def _sharded(self, model: PreTrainedModel) -> nn.Module:
        """Cut a model over the ranks, block by block; returns the module whose call gathers it."""
        half = self.settings.compute_dtype
        policy = MixedPrecisionPolicy(param_dtype=half, reduce_dtype=torch.float32 if half else None)
        blocks = set(model._no_split_modules or ())
        root = _NodeLogprobs(model)
        modules = [module for module in model.modules() if type(module).__name__ in blocks]
        for module in [*modules, root]:
            fully_shard(
                module, mesh=self.mesh, mp_policy=policy, offload_policy=self._offload, reshard_after_forward=True
            )
        for module in root.modules():
            if isinstance(module, FSDPModule):
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)  # else a sum scaled by 1, which gloo lacks
        return root

    def full_weights(self) -> Iterator[tuple[str, Tensor]]:
        """The policy's weights by the names of `state_dict`, each gathered on every rank when it is asked for.

        All ranks must draw all of them. The names of a tied weight follow one another, with one tensor.
        """
        names: dict[int, list[str]] = {}
        state = self.model.state_dict(keep_vars=True)
        for name, tensor in state.items():
            names.setdefault(id(tensor), []).append(name)
        for same in names.values():
            whole = full(state[same[0]].detach())
            for name in same:
                yield name, whole

    def weights(self) -> Mapping[str, Tensor]:
        """On rank 0 a copy of the policy's whole weights in the memory of the host, on the others nothing.

        They are gathered one by one, so a rank holds one whole tensor at a time beside its shards.
        """
        found: dict[str, Tensor] = {}
        before, copy = None, None
        for name, whole in self.full_weights():
            if self.rank == 0:
                if copy is None or whole is not before:
                    before, copy = whole, whole.to("cpu", copy=True)
                found[name] = copy
        return found

    def _micro_batches(self, groups: Sequence[RolloutGroup]) -> list[MicroBatch]:
        own = micro_batches(groups, self.max_nodes, self.max_tokens, part=(self.rank, self.mesh.size()))
        most = torch.tensor(len(own), device=self.device)
        dist.all_reduce(most, dist.ReduceOp.MAX, group=self.mesh.get_group())
        return own + [empty_batch()] * (int(most) - len(own))

    def _node_logprobs(self, model: PreTrainedModel, batch: MicroBatch) -> tuple[Tensor, Tensor]:
        root = self._policy_root if model is self.model else self._reference_root
        assert root is not None
        return root(batch, self.settings.temperature, self.settings.logit_rows)

    def _logprobs(self, model: PreTrainedModel, groups: Sequence[RolloutGroup]) -> list[Floats]:
        own = super()._logprobs(model, groups)  # 0 where another rank owns the node
        if not own:
            return own
        flat = torch.from_numpy(np.concatenate(own)).to(self.device)
        dist.all_reduce(flat, group=self.mesh.get_group())
        return np.split(flat.cpu().numpy(), np.cumsum([len(values) for values in own])[:-1])

    def _backward(self, groups: Sequence[RolloutGroup], values: NodeTensors, objective: Objective) -> dict[str, float]:
        own = super()._backward(groups, values, objective)
        gathered: list[dict[str, float]] = [{}] * self.mesh.size()
        dist.all_gather_object(gathered, own, group=self.mesh.get_group())
        sums: dict[str, float] = {}
        for metrics in gathered:  # in the order of ranks, so that every rank has the same sums
            add_metrics(sums, metrics)
        return sums

    def _with_less_memory(self, work: Callable[[], Result]) -> Result:
        """Run `work`; out of memory is final here, since the other ranks wait in the middle of a collective."""
        try:
            return work()
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            raise MemoryError(
                f"rank {self.rank}: out of memory with max_nodes {self.max_nodes} and max_tokens {self.max_tokens}; "
                "lower optimizer.max_nodes and resume, or use more ranks"
            ) from error
