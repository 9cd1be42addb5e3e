"""Run directories for reports, made without training: metrics, groups, evaluations, a tokenizer."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from brorl.group import Outcome, Prompt, RolloutGroup, ScoredGroup
from brorl.recipe_file import parse_recipe
from brorl.rundir import RunDirectory
from tiny_policy import character_tokenizer

TOKENIZER = character_tokenizer()
STOP = 2


DIGITS = dict(zip("0123456789", [0.7, 0.1, 0.06, *[0.02] * 7], strict=True))


def scored_group(
    prompt_id: str, texts: list[str], skill: float, *, question: str = "how much?", answer: str = "42"
) -> ScoredGroup:
    """A group of responses of `drawn_texts`, each as often as it is listed; those that end in 42 are correct."""
    ends = {"4": skill, "2": (1 - skill) * 0.7, "7": (1 - skill) * 0.3}
    rows = [[*TOKENIZER.encode(text, add_special_tokens=False), STOP] for text in texts]
    logprobs = []
    for text in texts:
        digits, end = text.split("=")
        chances = [*(DIGITS[d] for d in digits), 1.0, ends[end[0]], *[1.0] * len(end)]
        logprobs.append(np.log(np.maximum(chances, 1e-9)))
    group = RolloutGroup.from_sequences(Prompt(id=prompt_id, text=question, answer=answer), rows, logprobs=logprobs)
    correct = np.array([text.endswith("42") for text in group.texts(TOKENIZER)])
    outcomes = np.where(correct, Outcome.CORRECT, Outcome.WRONG).astype(np.uint8)
    rewards = correct.astype(np.float32)
    return ScoredGroup(
        group=group, rewards=rewards, outcomes=outcomes, parts={"length bonus": rewards * np.float32(0.5)}
    )


def drawn_texts(rng: np.random.Generator, rollouts: int, skill: float, length: int = 6) -> list[str]:
    """Answers that share beginnings: `skill` of them end in 42."""
    digits = rng.choice(list(DIGITS), size=(rollouts, length), p=list(DIGITS.values()))
    ends = np.where(rng.random(rollouts) < skill, "=42", np.where(rng.random(rollouts) < 0.7, "=24", "=7"))
    return ["".join(row) + str(end) for row, end in zip(digits, ends, strict=True)]


def record(step: int, **changes: Any) -> dict[str, Any]:
    """A line of metrics.jsonl."""
    return {
        "step": step, "lr": 1e-4, "kept_share": 0.8, "groups": 4, "rollouts": 256, "tokens": 2560, "nodes": 400,
        "distinct_node_share": 0.16, "mean_length": 10.0, "truncated_share": 0.01, "pass_at_1": 0.3,
        "outcome_correct": 0.3, "outcome_wrong": 0.7, "outcome_partial": 0.0, "outcome_no_answer": 0.0,
        "outcome_truncated": 0.0, "outcome_unscorable": 0.0, "outcome_error": 0.0, "fate_trained": 4,
        "entropy": 0.5, "kl": 0.001, "clip_high": 0.01, "clip_low": 0.01, "grad_norm": 0.3, "mismatch": 1e-7,
        "skipped": 0.0, "rollouts_per_second": 900.0, "peak_memory_mib": 500.0,
        "seconds": {"sampling": 1.0, "update": 2.0, "total": 3.1},
        **changes,
    }  # fmt: skip


def probe_figures(value: float) -> dict[str, Any]:
    change = {"value": value, "low": value - 0.001, "high": value + 0.001, "prompts": 4, "declined": {}}
    return {"prompts": 4, "p_pos": value, "p_neg": -value, "unseen_mass": 0.0, "q_pos": change, "retained_mass": 0.9,
            "bank_answers": 12, "bank_prompts": 4}  # fmt: skip


def made_run(
    path: Path, *, steps: int = 4, prompts: int = 4, rollouts: int = 64, length: int = 6, distinct_steps: int = 3,
    skill: tuple[float, float] = (0.2, 0.6), hostile: str = "", resets: tuple[int, ...] = (), **recipe: Any,
) -> RunDirectory:  # fmt: skip
    """A finished run whose policy learns; at most `distinct_steps` different group files, the others are copies.

    `hostile` text is put into questions, answers and ids.
    """
    settings = {"name": "made", "steps": steps, "tasks": [{"kind": "gym", "task": "chain_sum"}], **recipe}
    run = RunDirectory.create(parse_recipe(settings), path=path)
    rng = np.random.default_rng(0)
    (run.checkpoints / f"step_{steps:06d}").mkdir()
    TOKENIZER.save_pretrained(run.checkpoints / f"step_{steps:06d}")

    def groups(step: int, of: str, count: int) -> list[ScoredGroup]:
        level = skill[0] + (skill[1] - skill[0]) * step / steps
        found = []
        for i in range(count):
            mine = min(level * (i + 1) / count * 1.5, 1.0)
            texts = drawn_texts(rng, rollouts, mine, length)
            found.append(scored_group(f"task{i % 3}/{of}/{i}", texts, mine, question=f"what is {i}?{hostile}",
                                      answer=f"42{hostile}"))  # fmt: skip
        return found

    for step in range(steps):
        if step < distinct_steps:
            run.write_step(step, groups(step, f"train{step}", prompts))
        else:
            shutil.copyfile(run.group_file(step % distinct_steps), run.group_file(step))
        extra = {"probe": probe_figures(0.002), "seconds": {**record(0)["seconds"], "probe": 0.5}} if step < 2 else {}
        run.append_metrics(record(step, reference_reset="schedule" if step in resets else None, **extra))
    for step in (0, steps):
        score = {"value": 0.2 + step / 100, "low": 0.1, "high": 0.5, "level": 0.95, "problems": 8}
        scores = {"name": "held-out", "prompts": 8, "rollouts": rollouts, "pass_at": {"1": score, "4": score}}
        run.write_evaluation(step, "held-out", scores, groups(step, "heldout", 8))
    run.note(status="finished")
    return run


def metrics(run: RunDirectory, records: list[dict[str, Any]]) -> None:
    """Replace the run's metrics."""
    run.metrics.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
