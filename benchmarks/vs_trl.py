"""One full optimizer step beside TRL's GRPOTrainer: sampling, verification, reference log-probabilities, update.

Both sides run in processes of their own, in turn, step after step: the same model, prompts, number of rollouts,
temperature, response length, clipped loss with a k3 KL term, learning rate 0 (so that every step meets the same policy;
AdamW still runs), float32, two threads. Peak memory is each process's own. TRL runs with plain generation in float32.
TRL belongs into the same environment: pip install -e ".[trl]". Run it on an otherwise idle machine.

    python benchmarks/vs_trl.py --model runs/quickstart-1/checkpoints/step_000020 --smollm2 smollm2
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from measuring import HERE, RESULTS, environment, peak_memory_mib, ratio, summary, write_rows

RECIPES = HERE.parent / "recipes"
KL, LOW, HIGH = 1e-3, 0.2, 0.27


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What both sides do."""

    recipe: str
    """prompts, verifier and template are this recipe's"""
    rollouts: int
    prompts: int
    new_tokens: int
    micro_batch: int
    """TRL's sequences per forward pass in training: the fastest of those tried"""
    rounds: int
    aim: float
    memory_aim: float = 1.0
    """ours over theirs"""
    random_weights: bool = False
    """the model's shape with random weights and no end of sequence: nothing is shared but the prompt"""


SCENARIOS = {
    "bundled": Scenario(
        recipe="quickstart.yaml", rollouts=512, prompts=8, new_tokens=16, micro_batch=256, rounds=5, aim=10
    ),
    "smollm2_128": Scenario(
        recipe="smollm2.yaml",
        rollouts=128,
        prompts=2,
        new_tokens=6,
        micro_batch=32,
        rounds=3,
        aim=15,
        memory_aim=0.5,
    ),
    "smollm2_512": Scenario(
        recipe="smollm2.yaml",
        rollouts=512,
        prompts=2,
        new_tokens=6,
        micro_batch=32,
        rounds=2,
        aim=15,
        memory_aim=0.5,
    ),
    "nothing_shared": Scenario(
        recipe="quickstart.yaml",
        rollouts=512,
        prompts=4,
        new_tokens=64,
        micro_batch=256,
        rounds=5,
        aim=1.2,
        random_weights=True,
    ),
}


def main() -> None:
    options = _options()
    if options.side:
        steps = (our_steps if options.side == "ours" else their_steps)(SCENARIOS[options.scenario], options)
        _answer(steps)
        return
    rows: list[dict[str, Any]] = []
    for name in options.scenarios:
        if "smollm2" in name and options.smollm2 is None:
            print(f"{name}: left out, give --smollm2 DIR")
            continue
        rows += measure(name, options)
        write_rows(options.out, rows)


def _options() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("scenarios", nargs="*", default=list(SCENARIOS), help=f"of {', '.join(SCENARIOS)}")
    arguments.add_argument("--model", type=Path, required=True, help="the bundled model's checkpoint after make demo")
    arguments.add_argument("--smollm2", type=Path, help="the converted SmolLM2")
    arguments.add_argument("--rounds", type=int)
    arguments.add_argument("--prompts", type=int)
    arguments.add_argument("--rollouts", type=int)
    arguments.add_argument("--micro-batch", type=int)
    arguments.add_argument("--out", type=Path, default=RESULTS / "vs_trl.json")
    arguments.add_argument("--side", choices=["ours", "theirs"], help=argparse.SUPPRESS)
    arguments.add_argument("--scenario", help=argparse.SUPPRESS)
    return arguments.parse_args()


def _scenario(scenario: Scenario, options: argparse.Namespace) -> Scenario:
    """The scenario with what the command line changes."""
    given = {key: getattr(options, key) for key in ("rounds", "prompts", "rollouts", "micro_batch")}
    return replace(scenario, **{key: value for key, value in given.items() if value is not None})


def measure(name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Both sides in turn; a row for time and a row for memory."""
    scenario = _scenario(SCENARIOS[name], options)
    sides = {side: _start(side, name, options) for side in ("ours", "theirs")}
    steps: dict[str, list[dict[str, Any]]] = {"ours": [], "theirs": []}
    for round_number in range(-1, scenario.rounds):  # the first is a warm-up
        for side, process in sides.items():
            found = _step(process)
            print(f"{name} round {round_number} {side}: {found}", flush=True)
            if round_number >= 0:
                steps[side].append(found)
    for process in sides.values():
        process.stdin.close()
        process.wait()
    seconds = {side: [step["seconds"] for step in found] for side, found in steps.items()}
    memory = {side: max(step["peak_memory_mib"] for step in found) for side, found in steps.items()}
    facts = {
        "rollouts": scenario.rollouts,
        "prompts": scenario.prompts,
        "new_tokens": scenario.new_tokens,
        "their_micro_batch": scenario.micro_batch,
        "distinct_node_share": summary([step["distinct_node_share"] for step in steps["ours"]]),
        "their_mean_tokens": summary([step["mean_tokens"] for step in steps["theirs"]]),
        "our_mean_tokens": summary([step["mean_tokens"] for step in steps["ours"]]),
        **environment(2, ("brorl", "torch", "transformers", "trl")),
    }
    return [
        {
            "name": f"{name}: TRL's seconds a step over ours",
            **ratio(seconds["theirs"], seconds["ours"]),
            "aim": f">= {scenario.aim:g}",
            "medians": {side: summary(values) for side, values in seconds.items()},
            **facts,
        },
        {
            "name": f"{name}: our peak memory over TRL's",
            "ratio": memory["ours"] / memory["theirs"],
            "aim": f"<= {scenario.memory_aim:g}",
            "medians": memory,
            **facts,
        },
    ]


def _start(side: str, name: str, options: argparse.Namespace) -> Any:
    command = [sys.executable, __file__, "--side", side, "--scenario", name]
    for key in ("model", "smollm2", "rounds", "prompts", "rollouts", "micro_batch"):
        if getattr(options, key) is not None:
            command += [f"--{key.replace('_', '-')}", str(getattr(options, key))]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _step(process: Any) -> dict[str, Any]:
    process.stdin.write("go\n")
    process.stdin.flush()
    for line in process.stdout:
        if line.startswith("{"):
            return json.loads(line)
    raise SystemExit(f"a side ended early with exit code {process.wait()}; its messages are above")


def _answer(steps: Iterator[dict[str, float]]) -> None:
    """A side's loop: one step per line of standard input."""
    for found in steps:
        print(json.dumps({**found, "peak_memory_mib": peak_memory_mib()}), flush=True)


def _model(scenario: Scenario, options: argparse.Namespace) -> Path:
    return options.smollm2 if scenario.recipe == "smollm2.yaml" else options.model


def _recipe(scenario: Scenario, options: argparse.Namespace) -> Any:
    from brorl.config import load_recipe

    return load_recipe(
        RECIPES / scenario.recipe,
        [
            f"model.path={_model(scenario, options)}",
            "model.warm_optimizer=false",
            f"rollouts.per_prompt={scenario.rollouts}",
            f"rollouts.prompts_per_step={scenario.prompts}",
            f"rollouts.max_new_tokens={scenario.new_tokens}",
            "selection.drop_constant=false",
            "algorithm.minibatches=1",
            "algorithm.advantage=grpo",
            f"algorithm.loss={{name: clipped, eps_low: {LOW}, eps_high: {HIGH}}}",
            "algorithm.aggregation=token_mean",
            "algorithm.correction=none",
            "algorithm.kl=k3",
            f"algorithm.kl_weight={KL}",
        ],
    )


def our_steps(scenario: Scenario, options: argparse.Namespace) -> Iterator[dict[str, float]]:
    """A step of ours each time the next item is asked for and a line has come in."""
    import torch

    from brorl.build import open_parts
    from brorl.engines.protocol import SampleRequest
    from brorl.phases import Phases
    from brorl.updating import update_policy

    torch.set_num_threads(2)
    scenario = _scenario(scenario, options)
    recipe = _recipe(scenario, options)
    with open_parts(recipe) as parts:
        sampling = parts.sampling
        if scenario.random_weights:
            _randomise(parts.learner.model)
            if parts.learner.reference is not None:
                parts.learner.reference.load_state_dict(parts.learner.model.state_dict())
            sampling = replace(sampling, stop_token_ids=())
        for number, _ in enumerate(sys.stdin):
            prompts = [parts.data.prompt_at(number * scenario.prompts + slot) for slot in range(scenario.prompts)]
            requests = [
                SampleRequest(prompt=prompt, rollouts=scenario.rollouts, key=(0, "vs_trl", number, slot))
                for slot, prompt in enumerate(prompts)
                if prompt is not None
            ]
            started = time.perf_counter()
            phases = Phases()
            groups = parts.rollouts.draw(requests, sampling, phases)
            update_policy(parts.learner, groups, recipe, parts.advantage, 0.0, phases)
            seconds = time.perf_counter() - started
            tokens = sum(g.group.total_tokens for g in groups)
            yield {
                "seconds": seconds,
                "distinct_node_share": sum(g.group.nodes for g in groups) / tokens,
                "mean_tokens": tokens / (len(groups) * scenario.rollouts),
                "reward": sum(float(g.rewards @ g.group.end_counts) for g in groups)
                / (len(groups) * scenario.rollouts),
            }


def their_steps(scenario: Scenario, options: argparse.Namespace) -> Iterator[dict[str, float]]:
    """A step of TRL's trainer each time; it runs in a thread that waits between steps."""
    import queue
    import threading

    scenario = _scenario(scenario, options)
    done: queue.Queue[Any] = queue.Queue()
    go: queue.Queue[None] = queue.Queue()

    def work() -> None:
        try:
            _their_training(scenario, options, go, done)
        except BaseException as error:
            done.put(error)
            raise

    threading.Thread(target=work, daemon=True).start()
    for _ in sys.stdin:
        go.put(None)
        found = done.get()
        if isinstance(found, BaseException):
            raise found
        yield found


def _their_training(scenario: Scenario, options: argparse.Namespace, go: Any, done: Any) -> None:
    import tempfile

    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from brorl.build import open_data

    torch.set_num_threads(2)
    recipe = _recipe(scenario, options)
    path = _model(scenario, options)
    tokenizer = AutoTokenizer.from_pretrained(path)
    data = open_data(recipe, tokenizer)
    steps = scenario.rounds + 1
    prompts = [data.prompt_at(position) for position in range(steps * scenario.prompts)]
    assert all(p is not None for p in prompts)
    for prompt in prompts:
        assert list(prompt.token_ids) == tokenizer(prompt.text).input_ids, "both sides must see the same tokens"
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    if scenario.random_weights:
        _randomise(model)
        path = Path(tempfile.mkdtemp()) / "random"
        model.save_pretrained(path)
        tokenizer.save_pretrained(path)
    batch = scenario.prompts * scenario.rollouts

    class Timed(TrainerCallback):
        """Waits for the word before each step, and tells the time after it."""

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            go.get()
            self.started = time.perf_counter()

        def on_log(self, *_: Any, logs: Any, **__: Any) -> None:
            if "completions/mean_length" in logs:
                found = {"mean_tokens": logs["completions/mean_length"], "reward": logs["reward"]}
                done.put({"seconds": self.seconds, **found})

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.seconds = time.perf_counter() - self.started

    trainer = GRPOTrainer(
        model=str(path),
        processing_class=tokenizer,
        reward_funcs=_reward({p.id: p for p in prompts}),
        train_dataset=Dataset.from_list([{"prompt": p.text, "id": p.id} for p in prompts]),
        callbacks=[Timed()],
        args=GRPOConfig(
            output_dir=tempfile.mkdtemp(),
            per_device_train_batch_size=min(scenario.micro_batch, batch),
            gradient_accumulation_steps=max(1, batch // scenario.micro_batch),
            num_generations=scenario.rollouts,
            max_completion_length=scenario.new_tokens,
            generation_kwargs={"min_new_tokens": scenario.new_tokens} if scenario.random_weights else None,
            temperature=recipe.rollouts.temperature,
            top_k=0,
            learning_rate=0.0,
            beta=KL,
            epsilon=LOW,
            epsilon_high=HIGH,
            loss_type="dapo",
            max_grad_norm=recipe.optimizer.max_grad_norm,
            weight_decay=recipe.optimizer.weight_decay,
            max_steps=steps,
            logging_steps=1,
            shuffle_dataset=False,
            save_strategy="no",
            report_to="none",
            bf16=False,
            use_cpu=True,
            gradient_checkpointing=False,
            model_init_kwargs={"dtype": "float32"},
            disable_tqdm=True,
        ),
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()


def _reward(prompts: dict[str, Any]) -> Any:
    """Our verifier as TRL calls it; like ours, it sees an identical response to a prompt once."""
    from functools import cache

    from brorl.verifiers.custom import resolve

    verifiers = {prompt.verifier: resolve(prompt.verifier) for prompt in prompts.values()}

    @cache
    def verdict(name: str, text: str) -> float:
        return float(verifiers[prompts[name].verifier](prompts[name], text).reward)

    def reward(completions: list[str], id: list[str], **_: Any) -> list[float]:
        return [verdict(name, text) for name, text in zip(id, completions, strict=True)]

    return reward


def _randomise(model: Any) -> None:
    """Random weights from a fixed seed."""
    import torch

    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0.0, 0.02, generator=generator)


if __name__ == "__main__":
    main()
