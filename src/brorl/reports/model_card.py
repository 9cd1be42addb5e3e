"""The model card of an exported policy: where it comes from, how it was trained, what it scores."""

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

import yaml

_CARD = """---
library_name: transformers
pipeline_tag: text-generation
tags:
- reinforcement-learning
- rlvr
- brorl
---

# {name}

A causal language model, trained with reinforcement learning from verifiable rewards by brorl {version}{commit}:
{step} steps of {prompts} prompts with {rollouts} rollouts each, from `{base}`.
Its licence is that of the model it was trained from, whose card also says what it is fit for; nothing beyond the scores
below was measured.

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{name}")
model = AutoModelForCausalLM.from_pretrained("{name}")
```

A prompt as in training: {prompt}

## Scores

{scores}

## Data

{data}

## Recipe

```yaml
{recipe}```

Trained with {software}.
"""


def model_card(
    *,
    name: str,
    step: int,
    recipe: Mapping[str, Any],
    info: Mapping[str, Any],
    training: Sequence[Mapping[str, Any]],
    benchmarks: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The card as Markdown. Paths of the machine it was trained on are cut to their last part.

    Args:
        name: of the model.
        step: steps of training behind it.
        recipe: the resolved recipe, as JSON values.
        info: run.json.
        training: the run's evaluations of this step, as they stand in its ``evals``.
        benchmarks: results of `brorl eval` on it.
    """
    recipe = _bare(recipe)
    versions = info.get("versions") or {}
    prompt = recipe.get("prompt") or {}
    template = str(prompt.get("template", "{question}"))
    return _CARD.format(
        name=name,
        version=versions.get("brorl", "?"),
        commit=f" (commit {info['commit']})" if info.get("commit") else "",
        step=step,
        prompts=recipe["rollouts"]["prompts_per_step"],
        rollouts=recipe["rollouts"]["per_prompt"],
        base=recipe["model"]["path"],
        prompt=f"`{template!r}`, the chat template around it where the tokenizer has one.",
        scores=_scores(training, benchmarks),
        data="\n".join(_task(task) for task in recipe["tasks"]),
        recipe=yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True, width=100),
        software=", ".join(f"{package} {version}" for package, version in versions.items()) or "unknown versions",
    )


def _bare(value: Any) -> Any:
    """Without the folders of absolute paths: they say nothing to others, and something about their author."""
    if isinstance(value, Mapping):
        return {key: _bare(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_bare(item) for item in value]
    path = PurePath(value) if isinstance(value, str | PurePath) else None
    return path.name if path is not None and path.is_absolute() and "\n" not in str(value) else value


def _task(task: Mapping[str, Any]) -> str:
    if task.get("kind") == "gym":
        arguments = ", ".join(f"{key} {value}" for key, value in (task.get("args") or {}).items())
        return f"- Reasoning Gym, {task['task']}" + (f" ({arguments})" if arguments else "")
    verifier = f", verifier {task['verifier']}" if task.get("verifier") else ""
    return f"- {task['path']}{verifier}"


def _scores(training: Sequence[Mapping[str, Any]], benchmarks: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (found["name"], found["prompts"], found["rollouts"], f"pass@{k}", interval)
        for found in training
        for k, interval in found["pass_at"].items()
    ]
    for result in benchmarks:
        for name, found in result["benchmarks"].items():
            shown = {f"pass@{k}": value for k, value in found["pass_at"].items()}
            if found["score"] == "reward":
                shown = {"mean reward": found["mean_reward"], **shown}
            label = f"{name} (v{found['version']}, T {found['sampling']['temperature']})"
            rows += [(label, found["problems"], found["sampling"]["samples"], k, v) for k, v in shown.items()]
    if not rows:
        return "None were measured."
    lines = [
        "95 % intervals, clustered by problem.\n",
        "| problems | number | samples | score | value | interval |",
        "|---|---:|---:|---|---:|---|",
    ]
    for name, problems, samples, score, found in rows:
        interval = "-" if found["low"] is None else f"{found['low']:.4f} to {found['high']:.4f}"
        lines.append(f"| {name} | {problems} | {samples} | {score} | {found['value']:.4f} | {interval} |")
    return "\n".join(lines)
