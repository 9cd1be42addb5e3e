"""A tiny policy on disk: a random Llama with a character tokenizer, and data on which it can learn in seconds."""

import json
from pathlib import Path
from typing import Any

import torch
import yaml
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789 ?+=\n<>/.,:-"


def character_tokenizer() -> PreTrainedTokenizerFast:
    """One token per character; pad 0, bos 1, eos 2."""
    vocabulary = {token: i for i, token in enumerate(["<pad>", "<bos>", "<eos>", "<unk>", *CHARACTERS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")  # type: ignore[assignment]
    tokenizer.decoder = decoders.Fuse()  # type: ignore[assignment]
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<bos>", eos_token="<eos>", unk_token="<unk>"
    )


def save_tiny_policy(directory: Path, *, seed: int = 0, context: int = 64) -> Path:
    """Write the model directory of a random policy whose answers are random characters."""
    tokenizer = character_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        initializer_range=0.1,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_recipe(directory: Path, **changes: Any) -> Path:
    """A recipe in `directory` that trains the tiny policy to answer with a letter of the first half of the alphabet.

    `changes` replace top-level sections or merge into them.
    """
    model = directory / "model"
    if not model.exists():
        save_tiny_policy(model)
    data = directory / "data.jsonl"
    if not data.exists():
        questions = [f"say {first}{second}?" for first in "abcdefgh" for second in "uvwxyz"]
        write_rows(data, [{"id": f"q{i}", "question": q, "answer": "[a-m].*"} for i, q in enumerate(questions)])
    recipe: dict[str, Any] = {
        "name": "tiny",
        "seed": 3,
        "steps": 3,
        "model": {"path": str(model)},
        "tasks": [{"kind": "file", "path": str(data), "verifier": "regex", "meta": {"answer_format": "whole"}}],
        "rollouts": {"per_prompt": 24, "prompts_per_step": 4, "max_new_tokens": 8, "kv_budget_mib": 64},
        "algorithm": {"minibatches": 2},
        "optimizer": {"lr": 3e-3},
        "evaluation": {"heldout_prompts": 4, "training_prompts": 4, "rollouts": 16, "ks": [1, 4]},
        "verification": {"workers": 1},
    }
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(recipe.get(key), dict)
        recipe[key] = {**recipe[key], **value} if both else value
    path = directory / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe, sort_keys=False), encoding="utf-8")
    return path
