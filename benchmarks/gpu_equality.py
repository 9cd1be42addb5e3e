"""On a device: is the engine the learner, the trie gradient the flat gradient, and flex_attention the masked one?

Tiny random models in float32, TF32 off. Each check prints its largest difference beside what is allowed; the exit code
is the number of checks that failed. Needs torch, transformers and numpy alone:

    PYTHONPATH=src:tests python benchmarks/gpu_equality.py --device cuda
"""

import argparse
import sys
import traceback
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from brorl.algorithms.weights import token_weights
from brorl.engines.local import LocalEngine
from brorl.engines.protocol import SampleRequest, Sampling
from brorl.group import Prompt, RolloutGroup
from brorl.learner.attention import use_flex_attention
from brorl.learner.learner import Learner, LearnerSettings
from brorl.learner.objective import Objective, TrainingGroup
from tiny_models import tiny_model  # pyright: ignore[reportMissingImports]  # in tests/

SAMPLING = Sampling(max_new_tokens=12, stop_token_ids=(2,))
POLICY_TERM = Objective(kl_coefficient=0.0, correction="none")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--device", default="cuda")
    device = torch.device(arguments.parse_args().device)
    torch.backends.cuda.matmul.allow_tf32 = False
    checks: dict[str, tuple[Callable[[PreTrainedModel], float], float]] = {
        "engine = learner, nats": (engine_and_learner, 1e-4),
        "trie gradient = flat gradient, relative": (trie_and_flat, 1e-4),
    }
    if device.type == "cuda":  # on a CPU flex_attention has no gradient
        checks["flex_attention = masks, relative gradient"] = (flex_and_masks, 1e-4)
    failed = 0
    for architecture in ("llama", "qwen2", "qwen3", "gemma3"):
        for name, (check, allowed) in checks.items():
            try:
                found = check(tiny_model(architecture, width=64).to(device))  # type: ignore[arg-type]
            except Exception:
                traceback.print_exc()
                found = float("nan")
            failed += not found <= allowed
            print(f"{architecture}, {name}: {found:.2e} (at most {allowed:g})", flush=True)
    sys.exit(failed)


def engine_and_learner(model: PreTrainedModel) -> float:
    """Nats, the largest difference of a node's log-probability."""
    groups = sample(model)
    found = Learner(model, LearnerSettings(objective=POLICY_TERM, max_nodes=16)).logprobs(groups)
    return max(float(np.abs(now - drawn(group)).max()) for now, group in zip(found, groups, strict=True))


def trie_and_flat(model: PreTrainedModel) -> float:
    """Relative difference of the gradients."""
    batch = training(sample(model))
    found = Learner(model, LearnerSettings(objective=POLICY_TERM, max_nodes=16)).gradient(batch)
    for item in batch:
        flat_loss(model, item).backward()
    expected = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return distance(found, expected)


def flex_and_masks(model: PreTrainedModel) -> float:
    """Relative difference of the gradients."""
    batch = training(sample(model))
    settings = LearnerSettings(objective=POLICY_TERM, max_nodes=16)
    expected = Learner(model, settings).gradient(batch)
    use_flex_attention(model)
    return distance(Learner(model, settings).gradient(batch), expected)


def sample(model: PreTrainedModel) -> list[RolloutGroup]:
    prompts = [Prompt(id=str(i), text="", token_ids=np.arange(3, 6 + 2 * i, dtype=np.int32)) for i in range(3)]
    requests = [SampleRequest(prompt=p, rollouts=64, key=(1, i)) for i, p in enumerate(prompts)]
    groups = dict(LocalEngine(model).sample(requests, SAMPLING))
    return [groups[i] for i in range(len(prompts))]


def training(groups: list[RolloutGroup]) -> list[TrainingGroup]:
    return [
        TrainingGroup(group=group, advantages=np.linspace(-1, 1, group.distinct), weights=weights)
        for group, weights in zip(groups, token_weights(groups, "token_mean"), strict=True)
    ]


def flat_loss(model: PreTrainedModel, item: TrainingGroup) -> Tensor:
    """The policy term at ratio 1, response by response, through the model's own forward pass."""
    prompt = item.group.prompt.token_ids
    loss = torch.zeros((), device=model.device)
    for k, response in enumerate(item.group.responses()):
        ids = torch.from_numpy(np.concatenate([prompt, response]).astype(np.int64))[None].to(model.device)
        logprobs = model(ids).logits[0, len(prompt) - 1 : -1].float().log_softmax(-1)
        chosen = logprobs.gather(1, ids[0, len(prompt) :, None]).sum()
        loss = loss - float(item.group.end_counts[k] * item.weights[k] * item.advantages[k]) * chosen
    return loss


def drawn(group: RolloutGroup) -> np.ndarray:
    assert group.logprobs is not None
    return group.logprobs


def distance(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    assert found.keys() == expected.keys()
    apart = sum(float((found[name] - expected[name]).double().square().sum()) for name in expected)
    return (apart / sum(float(g.double().square().sum()) for g in expected.values())) ** 0.5


if __name__ == "__main__":
    main()
