"""TRL's side of `vs_trl.py`: its GRPOTrainer, held between steps until the next line of standard input.

Plain generation in float32: on a CPU the faster of what TRL offers without a server.
"""

import json
import queue
import sys
import tempfile
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any

import torch
from beside import answer
from datasets import Dataset  # pyright: ignore[reportMissingImports]
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer  # pyright: ignore[reportMissingImports]
from trl_scenario import Scenario, randomise

from brorl.group import Prompt
from brorl.prompts import open_data
from brorl.verifiers.custom import resolve


def main() -> None:
    torch.set_num_threads(2)
    scenario = Scenario(**json.loads(sys.argv[1]))
    gate = Gate()
    threading.Thread(target=gate.guarded, args=(lambda: train(scenario, gate),), daemon=True).start()
    answer(lambda _: gate.step())


class Gate(TrainerCallback):
    """Holds the trainer before each step until `step` is called, and hands back what the step took."""

    def __init__(self) -> None:
        self.go: queue.Queue[None] = queue.Queue()
        self.done: queue.Queue[dict[str, float] | BaseException] = queue.Queue()
        self.started = self.seconds = 0.0

    def step(self) -> dict[str, float]:
        self.go.put(None)
        found = self.done.get()
        if isinstance(found, BaseException):
            raise found
        return found

    def guarded(self, work: Any) -> None:
        try:
            work()
        except BaseException as error:
            self.done.put(error)

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.go.get()
        self.started = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.seconds = time.perf_counter() - self.started

    def on_log(self, *_: Any, logs: dict[str, float], **__: Any) -> None:
        if "completions/mean_length" in logs:
            figures = {"mean_tokens": logs["completions/mean_length"], "reward": logs["reward"]}
            self.done.put({"seconds": self.seconds, **figures})


def train(scenario: Scenario, gate: Gate) -> None:
    recipe, steps = scenario.as_recipe(), scenario.rounds + 1
    tokenizer = AutoTokenizer.from_pretrained(scenario.model)
    data = open_data(recipe, tokenizer)
    prompts = [p for i in range(steps * scenario.prompts) if (p := data.prompt_at(i)) is not None]
    for prompt in prompts:
        assert list(prompt.token_ids) == tokenizer(prompt.text).input_ids, "both sides must see the same tokens"
    rollouts = scenario.prompts * scenario.rollouts
    trainer = GRPOTrainer(
        model=_model(scenario, tokenizer),
        processing_class=tokenizer,
        reward_funcs=reward({p.id: p for p in prompts}),
        train_dataset=Dataset.from_list([{"prompt": p.text, "id": p.id} for p in prompts]),
        callbacks=[gate],
        args=GRPOConfig(
            output_dir=tempfile.mkdtemp(),
            per_device_train_batch_size=min(scenario.micro_batch, rollouts),
            gradient_accumulation_steps=max(1, rollouts // scenario.micro_batch),
            num_generations=scenario.rollouts,
            max_completion_length=scenario.new_tokens,
            generation_kwargs={"min_new_tokens": scenario.new_tokens} if scenario.random_weights else None,
            temperature=recipe.rollouts.temperature,
            top_k=0,
            learning_rate=0.0,
            beta=recipe.algorithm.kl_weight,
            epsilon=recipe.algorithm.loss.args["eps_low"],
            epsilon_high=recipe.algorithm.loss.args["eps_high"],
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


def _model(scenario: Scenario, tokenizer: Any) -> str:
    """A directory, since TRL loads its reference policy by name."""
    if not scenario.random_weights:
        return scenario.model
    model = AutoModelForCausalLM.from_pretrained(scenario.model, dtype=torch.float32)
    randomise(model)
    path = Path(tempfile.mkdtemp()) / "random"
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return str(path)


def reward(prompts: dict[str, Prompt]) -> Any:
    """Our verifier as TRL calls it; as on our side, an identical response to a prompt is graded once."""
    verifiers = {prompt.verifier: resolve(prompt.verifier) for prompt in prompts.values()}

    @cache
    def verdict(name: str, text: str) -> float:
        return float(verifiers[prompts[name].verifier](prompts[name], text).reward)

    def function(completions: list[str], id: list[str], **_: Any) -> list[float]:
        return [verdict(name, text) for name, text in zip(id, completions, strict=True)]

    return function


if __name__ == "__main__":
    main()
