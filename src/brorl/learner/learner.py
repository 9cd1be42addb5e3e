"""The learner: log-probabilities of groups, and one optimizer step on a batch of them.

Weights are fixed before a batch is split and every loss is a sum over nodes, so micro-batches only add up.
"""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import Parameter
from transformers import PreTrainedModel

from brorl.errors import ModelError, RunError
from brorl.group import Floats, RolloutGroup
from brorl.learner.logprobs import LOGIT_ROWS, node_logprobs
from brorl.learner.lora import Lora, add_adapter, copy_sharing, merged_weights
from brorl.learner.objective import (
    NodeTensors,
    Objective,
    TrainingGroup,
    add_metrics,
    mean_metrics,
    node_tensors,
    objective_sum,
)
from brorl.learner.placement import full, placed_like
from brorl.learner.tree import MicroBatch, micro_batches, on_device

Result = TypeVar("Result")
OPTIMIZER_FILE = "optimizer.state"
"""AdamW's state by parameter name, in a checkpoint, and optionally beside a model to start warm from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerSettings:
    """How the learner trains."""

    objective: Objective = field(default_factory=Objective)
    temperature: float = 1.0
    """of the rollouts: every log-probability is taken at it"""
    betas: tuple[float, float] = (0.9, 0.999)
    adam_eps: float = 1e-8
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    exploding_norm: float = math.inf
    """a gradient of a larger norm is skipped, not clipped"""
    max_nodes: int = 256
    """nodes per piece of a trie; on a CPU attention costs more than the repeated paths save beyond 256"""
    max_tokens: int = 4096
    """tokens per micro-batch, padding included"""
    logit_rows: int = LOGIT_ROWS
    """next-token distributions held at once"""
    gradient_checkpointing: bool = False
    compute_dtype: torch.dtype | None = None
    """of matrix products, by autocast; None is that of the weights. Master weights and optimizer stay in float32."""
    lora: Lora | None = None
    """train an adapter on the frozen model; None trains the model"""


class Learner:
    """A policy under training, its optimizer, and its reference policy where there is a KL term.

    Weights in half precision become float32 master weights, and half precision the compute dtype. Dropout is off: the
    ratio of an unchanged policy is 1. With LoRA the model is frozen, and the reference policy is a copy of the adapter
    on the same frozen weights: at the start the model itself.

    Raises:
        ModelError: gradient checkpointing for a model with dropout; LoRA without peft or on layers that are not there.
    """

    def __init__(self, model: PreTrainedModel, settings: LearnerSettings | None = None) -> None:
        settings = settings or LearnerSettings()
        if model.dtype in (torch.bfloat16, torch.float16):
            settings = replace(settings, compute_dtype=settings.compute_dtype or model.dtype)
            model = model.float()
        self.settings = settings
        self.model, self.device = model.eval(), model.device
        self.adapter = add_adapter(model, settings.lora) if settings.lora else None
        frozen = [parameter for parameter in model.parameters() if not parameter.requires_grad]
        keeps_reference = settings.objective.kl_coefficient > 0
        self.reference = copy_sharing(model, frozen).requires_grad_(False) if keeps_reference else None
        if settings.gradient_checkpointing:
            _checkpoint_gradients(model)
        self.optimizer = self._new_optimizer()
        self.policy_version = 0
        self.skipped_steps = 0
        self.max_nodes, self.max_tokens = settings.max_nodes, settings.max_tokens

    def _new_optimizer(self) -> torch.optim.AdamW:
        return torch.optim.AdamW(
            self.trainable().values(),
            lr=0.0,
            betas=self.settings.betas,
            eps=self.settings.adam_eps,
            weight_decay=self.settings.weight_decay,
            fused=True,  # one pass over the state instead of a dozen
        )

    def trainable(self) -> dict[str, Parameter]:
        """The parameters that are trained: all of them, or the adapter's."""
        return {name: parameter for name, parameter in self.model.named_parameters() if parameter.requires_grad}

    def weights(self) -> Mapping[str, Tensor]:
        """The policy's weights by the names of the plain model's `state_dict`, an adapter merged in.

        Not copied but where an adapter changes them: use them before the next step.
        """
        return merged_weights(self.model) if self.adapter else self.model.state_dict()

    def reset_reference(self, *, clear_optimizer: bool = False) -> None:
        """Make the current policy the reference; the optimizer state is kept (ProRL v2) or cleared (v1).

        Raises:
            RunError: there is no reference policy.
        """
        if self.reference is None:
            raise RunError("there is no reference policy to reset: kl_coefficient is 0")
        self.reference.load_state_dict(self.model.state_dict())
        if clear_optimizer:
            self.clear_optimizer()

    def clear_optimizer(self) -> None:
        """Forget the optimizer state."""
        self.optimizer = self._new_optimizer()

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """AdamW's state as ``<parameter>/<step | exp_avg | exp_avg_sq>``; empty before the first step."""
        return {
            f"{name}/{key}": value.detach().contiguous()
            for name, parameter in self.trainable().items()
            for key, value in self.optimizer.state.get(parameter, {}).items()
        }

    def load_optimizer(self, directory: Path) -> None:
        """Start from the optimizer state stored in a model directory or checkpoint.

        Raises:
            ModelError: no such file, damaged, or of another model.
        """
        file = directory / OPTIMIZER_FILE
        try:
            tensors = load_file(file)
        except (OSError, SafetensorError) as error:
            raise ModelError(
                f"{file}: no usable optimizer state ({error}); train without it, or copy it again"
            ) from error
        parameters = self.trainable()
        # A parameter that never had a gradient has no state, so entries may be missing, whole parameters at a time.
        names = sorted({name.rpartition("/")[0] for name in tensors})
        for name in names:
            moments = [tensors.get(f"{name}/{key}") for key in ("exp_avg", "exp_avg_sq")]
            if (
                name not in parameters
                or f"{name}/step" not in tensors
                or any(m is None or m.shape != parameters[name].shape for m in moments)
            ):
                raise ModelError(
                    f"{file}: the optimizer state of another model (first difference: {name}); "
                    "remove the file to train without it"
                )
        self.clear_optimizer()
        for name in names:
            parameter = parameters[name]
            self.optimizer.state[parameter] = {
                "step": tensors[f"{name}/step"],
                "exp_avg": placed_like(tensors[f"{name}/exp_avg"], parameter),
                "exp_avg_sq": placed_like(tensors[f"{name}/exp_avg_sq"], parameter),
            }

    def counters(self) -> dict[str, int]:
        """What a checkpoint keeps besides tensors."""
        return {
            "policy_version": self.policy_version,
            "skipped_steps": self.skipped_steps,
            "max_nodes": self.max_nodes,
            "max_tokens": self.max_tokens,
        }

    def set_counters(self, counters: Mapping[str, int]) -> None:
        """Take up the counters of a checkpoint."""
        self.policy_version = counters["policy_version"]
        self.skipped_steps = counters["skipped_steps"]
        self.max_nodes, self.max_tokens = counters["max_nodes"], counters["max_tokens"]

    def logprobs(self, groups: Sequence[RolloutGroup], *, reference: bool = False) -> list[Floats]:
        """[M] per group, log p(token | prefix) of every node under the policy, or under the reference policy.

        Raises:
            RunError: the reference is asked for and there is none.
        """
        model = self.reference if reference else self.model
        if model is None:
            raise RunError("there is no reference policy: kl_coefficient is 0")
        return self._with_less_memory(lambda: self._logprobs(model, groups))

    @torch.no_grad()
    def _logprobs(self, model: PreTrainedModel, groups: Sequence[RolloutGroup]) -> list[Floats]:
        offsets = np.cumsum([0, *(group.nodes for group in groups)])
        flat = torch.zeros(int(offsets[-1]), dtype=model.dtype)
        for batch in self._micro_batches(groups):
            values, _ = self._node_logprobs(model, batch)
            flat[torch.from_numpy(batch.nodes)] = values.cpu().to(flat.dtype)
        return np.split(flat.numpy(), offsets[1:-1]) if groups else []

    def step(self, batch: Sequence[TrainingGroup], lr: float) -> dict[str, float]:
        """One optimizer step on the groups of one mini-batch.

        Args:
            batch: groups whose weights were fixed together.
            lr: the learning rate of this step.

        Returns:
            ``loss`` (with the KL term) and ``policy_loss``; means over the token weights: ``kl``, ``entropy``,
            ``ratio``, ``correction``, ``correction_zero`` (share masked), ``mismatch`` (|log old - log rollout|);
            ``ratio_max``; ``clip_high``, ``clip_low``, ``clip_dual`` (shares of the absolute advantage);
            ``grad_norm`` before clipping; ``skipped``, 1 where the gradient was not finite or exploding and nothing
            moved.

        Raises:
            ValueError: no group, or log-probabilities missing that the objective needs.
        """
        sums = self._accumulate(batch, self.settings.objective)
        norm = full(torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.max_grad_norm)).item()
        usable = norm <= self.settings.exploding_norm and math.isfinite(norm)
        if usable:
            for parameters in self.optimizer.param_groups:
                parameters["lr"] = lr
            self.optimizer.step()
            self.policy_version += 1
        else:
            self.skipped_steps += 1
            warnings.warn(f"gradient norm is {norm}: this step is skipped, the weights stay as they were", stacklevel=2)
        self.optimizer.zero_grad(set_to_none=True)
        return mean_metrics(sums) | {"grad_norm": norm, "skipped": float(not usable)}

    def gradient(self, batch: Sequence[TrainingGroup], objective: Objective | None = None) -> dict[str, Tensor]:
        """The gradient of the learner's objective, or of another, by parameter name, without a step."""
        self._accumulate(batch, objective or self.settings.objective)
        found = {name: full(p.grad) for name, p in self.model.named_parameters() if p.grad is not None}
        self.optimizer.zero_grad(set_to_none=True)
        return found

    def _accumulate(self, batch: Sequence[TrainingGroup], objective: Objective) -> dict[str, float]:
        """Leave the gradient of the whole batch on the parameters; returns the metrics as sums."""
        if not batch:
            raise ValueError("a step needs at least one group")
        groups = [item.group for item in batch]
        current = self.logprobs(groups) if objective.sequence_level else None
        values = node_tensors(batch, objective, self.device, self.model.dtype, current)
        return self._with_less_memory(lambda: self._backward(groups, values, objective))

    def _backward(self, groups: Sequence[RolloutGroup], values: NodeTensors, objective: Objective) -> dict[str, float]:
        self.optimizer.zero_grad(set_to_none=True)
        sums: dict[str, float] = {}
        for batch in self._micro_batches(groups):
            nodes = on_device(batch.nodes, self.device)
            logprobs, entropies = self._node_logprobs(self.model, batch)
            if not len(nodes):  # of a rank with less to do; a loss of somebody's own may not know how to sum nothing
                logprobs.sum().backward()
                continue
            loss, metrics = objective_sum(objective, values, nodes, logprobs, entropies)
            loss.backward()
            add_metrics(sums, metrics)
        return sums

    def _micro_batches(self, groups: Sequence[RolloutGroup]) -> list[MicroBatch]:
        return micro_batches(groups, self.max_nodes, self.max_tokens)

    def _node_logprobs(self, model: PreTrainedModel, batch: MicroBatch) -> tuple[Tensor, Tensor]:
        dtype = self.settings.compute_dtype
        with nullcontext() if dtype is None else torch.autocast(self.device.type, dtype=dtype):
            return node_logprobs(model, batch, self.settings.temperature, logit_rows=self.settings.logit_rows)

    def _with_less_memory(self, work: Callable[[], Result]) -> Result:
        """Run `work`; when memory runs out, halve the micro-batches and start it again.

        The whole accumulation starts again, not the one micro-batch: a backward pass that fails midway has already
        added part of its gradient. Micro-batches come largest first, so little is lost.
        """
        while True:
            try:
                return work()
            except (MemoryError, RuntimeError) as error:
                if not out_of_memory(error) or self.max_tokens <= 1:
                    raise
            self.max_nodes, self.max_tokens = max(1, self.max_nodes // 2), self.max_tokens // 2
            warnings.warn(
                f"out of memory: repeating with max_nodes {self.max_nodes} and max_tokens {self.max_tokens}, and going "
                "on with them",
                stacklevel=2,
            )
            if self.model.device.type == "cuda":
                torch.cuda.empty_cache()


def out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, on whatever device."""
    # PyTorch's CPU allocator raises a plain RuntimeError.
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or any(
        text in str(error) for text in ("not enough memory", "can't allocate memory")
    )


def _checkpoint_gradients(model: PreTrainedModel) -> None:
    # Transformers checkpoints in training mode only, and that mode turns dropout on.
    dropout = {key: value for key, value in model.config.to_dict().items() if "drop" in key and value}
    if dropout:
        raise ModelError(f"gradient checkpointing needs a model without dropout; set {dropout} to 0 in its config.json")
    if hasattr(model, "activation_checkpointing_enable"):  # its name from transformers 5.24 on
        model.activation_checkpointing_enable()
    else:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
