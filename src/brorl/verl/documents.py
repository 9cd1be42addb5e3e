"""The texts of an exported directory."""

from collections.abc import Mapping, Sequence
from typing import Any

from brorl.config import Recipe
from brorl.verl.overrides import TRAPS

REWARD = '''"""verl's reward function: brorl's verifiers; reward.json beside this file holds their settings."""

from pathlib import Path

from brorl.verl.grading import reward_function

compute_score = reward_function(Path(__file__).with_name("reward.json"))
'''

PLUGIN = '''"""Estimators and losses of brorl in verl's registries; verl loads this through its entry point."""

from brorl.verl.plugin import register

register({advantages!r}, {losses!r}, correct_threshold={threshold!r})
'''

PLUGIN_PROJECT = """[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "brorl-verl-plugin"
version = "{version}"
description = "brorl's advantage estimators and losses for verl"
requires-python = ">=3.11"

[project.entry-points."verl.plugins"]
brorl = "brorl_verl_plugin"

[tool.setuptools]
py-modules = ["brorl_verl_plugin"]
"""

LAUNCH = """#!/usr/bin/env bash
# Runs {name} in verl {verl}. Further arguments are Hydra overrides: ./launch.sh trainer.nnodes=4
set -euo pipefail
cd "$(dirname "$0")"
unset VERL_USE_EXTERNAL_PLUGINS
for file in data/train.parquet data/heldout.parquet; do
  [ -f "$file" ] || {{ echo "$file is missing: export where the recipe's model and data are" >&2; exit 1; }}
done
# verl hides the error of a plugin that does not load.
python -c 'from brorl.verl.plugin import check_registered; import verl; check_registered("{advantage}", "{loss}")'
mapfile -t overrides < overrides.txt
exec python -m verl.trainer.main_ppo "${{overrides[@]}}" "$@"
"""


def readme(
    recipe: Recipe,
    settings: Mapping[str, Any],
    differences: Sequence[str],
    missing: Sequence[str],
    rows: int,
    heldout: int,
    verl: str,
) -> str:
    """README.md of an exported directory."""
    rollouts = recipe.rollouts
    data = (
        f"`data/`: {rows} training rows in the order in which brorl draws them, {heldout} held-out rows."
        if rows
        else "`data/` is empty: " + "; ".join(missing) + ". Export again where they are."
    )
    reasons = [f"| `{key.lstrip('+')}` | `{settings[key]}` | {why} |" for key, why in TRAPS.items() if key in settings]
    return "\n".join(
        [
            f"# {recipe.name} in verl {verl}",
            "",
            f"{rollouts.prompts_per_step} prompts x {rollouts.per_prompt} rollouts, {recipe.steps} steps. Written by "
            "`brorl export-verl`. Not run on GPUs by its authors."
            " What is tested stands in docs/verl.md of brorl.",
            "",
            "On every node (this directory on a shared file system, paths inside are absolute):",
            "",
            "```",
            f'pip install "verl[verl-core]=={verl}" vllm brorl',
            "pip install --no-deps ./plugin",
            "./launch.sh                # on the head node of a Ray cluster, or alone",
            "```",
            "",
            data,
            "",
            "Prompts are rendered already, chat template included; `custom_chat_template` passes them on unchanged.",
            "",
            "## What verl does otherwise",
            "",
            *[f"- {sentence}" for sentence in differences],
            "",
            "## Settings that keep verl from a trap",
            "",
            "| setting | value | why |",
            "|---|---|---|",
            *reasons,
            "",
            "Host memory: verl's queue holds a whole step's sequences as tensors on the host; plan for it at "
            f"{rollouts.prompts_per_step * rollouts.per_prompt} sequences of up to {rollouts.max_new_tokens} tokens.",
            "",
        ]
    )
