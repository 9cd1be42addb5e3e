"""`brorl export-verl`: a directory from which verl runs a recipe at scale."""

import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from transformers import PreTrainedTokenizerBase

from brorl import __version__
from brorl.build import resolve_shapings
from brorl.config import Recipe
from brorl.errors import DataError, ModelError, RunError
from brorl.group import Prompt
from brorl.inspection import missing_parts
from brorl.learner.model import load_tokenizer, model_directory
from brorl.metrics import TASK
from brorl.prompts import Data, open_data
from brorl.verifiers.pool import VerifierPool
from brorl.verl.documents import LAUNCH, PLUGIN, PLUGIN_PROJECT, REWARD, readme
from brorl.verl.overrides import Written, beyond_verl, overrides, text
from brorl.verl.plugin import loss_name, registered_name

VERL = "0.9.1"
DRAWN = 1.5
"""rows written per prompt trained on: dynamic sampling draws about as many more (paper, Table 2)"""
MOST_ROWS = 200_000
PLAIN_TEMPLATE = '{% for message in messages %}{{ message["content"] }}{% endfor %}'
"""Prompts are rendered by brorl, chat template and all; verl must not render them again."""
_CHECKED = 64
_DEFAULT_PROMPT_TOKENS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """What was written under data/."""

    train: int = 0
    heldout: int = 0
    longest: int = 0
    """prompt tokens"""
    chat_template: str = PLAIN_TEMPLATE


def export_verl(
    recipe: Recipe, directory: Path, *, rows: int | None = None, nodes: int = 1, gpus_per_node: int = 8
) -> dict[str, Any]:
    """Write overrides, launch script, reward function, plugin and data, whole or not at all.

    Where the recipe's model or data are not on this machine, everything but ``data/`` is written.

    Args:
        rows: training rows; by default one and a half for each prompt that the run trains on.

    Returns:
        ``directory``, ``files``, ``rows``, ``heldout_rows``, ``overrides``, ``beyond_verl`` (what verl does otherwise),
        ``missing`` (what this machine lacks).

    Raises:
        RunError: `directory` holds something, or cannot be written.
        UserError: whatever of the recipe cannot be used.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise RunError(f"{directory}: already holds something; name a directory that is empty or not there")
    resolve_shapings(recipe)
    missing = missing_parts(recipe)
    target = directory.resolve()
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        (partial / "data").mkdir(parents=True)
        (partial / "plugin").mkdir()
        written = Rows() if missing else _write_data(recipe, partial / "data", rows)
        settings = overrides(
            recipe,
            Written(
                directory=target,
                model=_model_path(recipe),
                prompt_tokens=recipe.prompt.max_tokens or _rounded(written.longest),
                rows=written.train,
                chat_template=written.chat_template,
                nodes=nodes,
                gpus_per_node=gpus_per_node,
            ),
        )
        differences = beyond_verl(recipe)
        for name, content in _files(recipe, settings, differences, missing, written).items():
            (partial / name).write_text(content, encoding="utf-8")
        (partial / "launch.sh").chmod(0o755)
        if directory.exists():
            directory.rmdir()
        partial.rename(target)
    except OSError as error:
        raise RunError(f"{directory}: cannot be written ({error.strerror})") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return {
        "directory": str(directory),
        "files": sorted(str(file.relative_to(target)) for file in target.rglob("*") if file.is_file()),
        "rows": written.train,
        "heldout_rows": written.heldout,
        "overrides": settings,
        "beyond_verl": differences,
        "missing": missing,
    }


def _files(
    recipe: Recipe, settings: Mapping[str, Any], differences: list[str], missing: list[str], written: Rows
) -> dict[str, str]:
    verification, algorithm = recipe.verification, recipe.algorithm
    workers = 8  # verl's reward.num_workers, each with a pool of its own
    reward = {
        "workers": max(1, verification.workers // workers),
        "deadline_seconds": verification.deadline_seconds,
        "memory_mib": verification.memory_mib,
        "correct_threshold": verification.correct_threshold,
        "max_error_share": verification.max_error_share,
        "max_new_tokens": recipe.rollouts.max_new_tokens,
        "shaping": [shaping.model_dump() for shaping in algorithm.shaping],
    }
    names = {"advantage": registered_name(algorithm.advantage), "loss": loss_name(algorithm.loss)}
    own_loss = [algorithm.loss.name] if ":" in algorithm.loss.name else []
    plugin = PLUGIN.format(
        advantages=[algorithm.advantage.model_dump()], losses=own_loss, threshold=verification.correct_threshold
    )
    return {
        "overrides.txt": "".join(text(key, value) + "\n" for key, value in settings.items()),
        "launch.sh": LAUNCH.format(name=recipe.name, verl=VERL, **names),
        "reward.py": REWARD,
        "reward.json": json.dumps(reward, indent=2) + "\n",
        "plugin/pyproject.toml": PLUGIN_PROJECT.format(version=__version__),
        "plugin/brorl_verl_plugin.py": plugin,
        "README.md": readme(recipe, settings, differences, missing, written.train, written.heldout, VERL),
    }


def _model_path(recipe: Recipe) -> str:
    try:
        return str(model_directory(recipe.model.path).resolve())
    except ModelError:
        return recipe.model.path


def _rounded(tokens: int) -> int:
    return -(-tokens // 64) * 64 or _DEFAULT_PROMPT_TOKENS


def _write_data(recipe: Recipe, directory: Path, rows: int | None) -> Rows:
    tokenizer = load_tokenizer(recipe.model.path)
    verification = recipe.verification
    with VerifierPool(
        workers=verification.workers, deadline=verification.deadline_seconds, memory_mib=verification.memory_mib
    ) as pool:
        data = open_data(recipe, tokenizer, pool)
        wanted = rows or min(MOST_ROWS, round(DRAWN * recipe.steps * recipe.rollouts.prompts_per_step))
        training = list(islice(_stream(data, wanted), wanted))
    heldout = list(data.evaluation_sets.get("held-out", ())) or training[:1]
    if len(training) < recipe.rollouts.prompts_per_step:
        raise DataError(
            f"{len(training)} training rows are fewer than one step's {recipe.rollouts.prompts_per_step} prompts: verl "
            "drops an incomplete batch and would run no step; give --rows more, or the recipe more data"
        )
    template = _template(training, tokenizer)
    _write_parquet(directory / "train.parquet", training, "train")
    _write_parquet(directory / "heldout.parquet", heldout, "heldout")
    longest = max(len(prompt.token_ids) for prompt in (*training, *heldout))
    return Rows(train=len(training), heldout=len(heldout), longest=longest, chat_template=template)


def _stream(data: Data, wanted: int) -> Iterable[Prompt]:
    """Prompts in the order in which brorl draws them; one pass where the data is finite."""
    for position in range(data.span or 20 * wanted):
        prompt = data.prompt_at(position)
        if prompt is not None:
            yield prompt


def _template(prompts: list[Prompt], tokenizer: PreTrainedTokenizerBase) -> str:
    """The template that makes verl's token ids brorl's own: the text as it is, after a BOS where one is added.

    Raises:
        DataError: no such template does.
    """
    for template in (PLAIN_TEMPLATE, "{{ bos_token }}" + PLAIN_TEMPLATE):
        if all(_ids(tokenizer, prompt, template) == prompt.token_ids.tolist() for prompt in prompts[:_CHECKED]):
            return template
    raise DataError(f"prompt {prompts[0].id}: this tokenizer does not give the same tokens under a chat template")


def _ids(tokenizer: PreTrainedTokenizerBase, prompt: Prompt, template: str) -> list[int]:
    found: Any = tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt.text}], chat_template=template, tokenize=True, return_dict=False
    )
    return list(found)


def _write_parquet(path: Path, prompts: list[Prompt], split: str) -> None:
    """verl's columns; what a verifier needs beside the answer is JSON, because Parquet would give it one schema."""
    table = [
        {
            "data_source": str(prompt.meta.get(TASK, prompt.verifier)),
            "prompt": [{"role": "user", "content": prompt.text}],
            "ability": prompt.verifier,
            "reward_model": {"style": "rule", "ground_truth": prompt.answer},
            "extra_info": {
                "index": index,
                "split": split,
                "id": prompt.id,
                "verifier": prompt.verifier,
                "meta": json.dumps(dict(prompt.meta), ensure_ascii=False),
            },
        }
        for index, prompt in enumerate(prompts)
    ]
    pq.write_table(pa.Table.from_pylist(table), path)
