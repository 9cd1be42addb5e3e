"""A recipe as overrides of verl's configuration (0.9.1, its V1 trainer), and what of it verl cannot do.

Each override stands for a setting of the recipe, or keeps verl from a default that is wrong at hundreds of rollouts per
prompt; `TRAPS` says why for the latter.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brorl.config import FileTask, Recipe
from brorl.recipe_differences import effective_lr
from brorl.seeding import derive_seed
from brorl.verl.plugin import loss_name, registered_name

AGGREGATIONS = {
    "token_mean": "token-mean",
    "sequence_mean": "seq-mean-token-mean",
    "prompt_mean": "seq-mean-token-mean",
    "constant": "seq-mean-token-sum-norm",
}
KL = {"k2": "k2", "k3": "low_var_kl"}
MAX_NUM_SEQS = 1024
SEED_RANGE = 2**31

TRAPS: Mapping[str, str] = {
    "actor_rollout_ref.rollout.max_num_seqs": "256 by default: one prompt's 512 rollouts would queue behind each other",
    "actor_rollout_ref.rollout.enable_prefix_caching": "every rollout of a prompt shares it",
    "+actor_rollout_ref.rollout.engine_kwargs.vllm.disable_cascade_attn": "cascade attention for shared prefixes gave "
    "wrong log-probabilities in some vLLM versions",
    "actor_rollout_ref.rollout.logprobs_mode": "the correction compares them with the learner's at one temperature",
    "actor_rollout_ref.rollout.tensor_model_parallel_size": "2 by default: a small model fits one device",
    "actor_rollout_ref.rollout.seed": "data.seed does not seed sampling: each has its own",
    "algorithm.filter_groups.metric": "correctness, not the shaped reward, decides whether a group has signal",
    "data.truncation": "a cut prompt is another prompt",
    "data.shuffle": "rows are in the order in which brorl would draw them",
    "trainer.total_training_steps": "counted in steps, not in passes over the data: a resume at the end of a pass "
    "would run nothing",
    "trainer.logger": "wandb by default, which waits for a login",
    "trainer.rollout_data_dir": "brorl analyze reads these dumps; null saves the disk",
    "transfer_queue.backend.SimpleStorage.total_storage_size": "100,000 by default: a step and its refill hold more",
    "actor_rollout_ref.actor.use_dynamic_bsz": "micro-batches by tokens: responses differ widely in length",
    "critic.enable": "no critic; by default guessed from the estimator's name",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What the overrides point at."""

    directory: Path
    """absolute"""
    model: str
    prompt_tokens: int
    """the longest prompt"""
    rows: int
    """training rows; 0 where none were written"""
    chat_template: str
    nodes: int = 1
    gpus_per_node: int = 8


def overrides(recipe: Recipe, written: Written) -> dict[str, Any]:
    """Key of verl's configuration -> value; a leading + marks a key that its schema leaves open."""
    return {
        **_data(recipe, written),
        **_rollout(recipe, written),
        **_actor(recipe, written),
        **_algorithm(recipe),
        **_trainer(recipe, written),
    }


def _data(recipe: Recipe, written: Written) -> dict[str, Any]:
    return {
        "data.train_files": str(written.directory / "data" / "train.parquet"),
        "data.val_files": str(written.directory / "data" / "heldout.parquet"),
        "data.train_batch_size": recipe.rollouts.prompts_per_step,
        "data.max_prompt_length": written.prompt_tokens,
        "data.max_response_length": recipe.rollouts.max_new_tokens,
        "data.filter_overlong_prompts": False,
        "data.truncation": "error",
        "data.shuffle": False,
        "data.seed": derive_seed(recipe.seed, "verl data") % SEED_RANGE,
        "reward.custom_reward_function.path": str(written.directory / "reward.py"),
        "reward.custom_reward_function.name": "compute_score",
        "reward.reward_manager.source": "importlib",
        "reward.reward_manager.name": "ResponseRewardManager",
        "reward.reward_manager.module.path": "pkg://brorl.verl.reward_manager",
    }


def _rollout(recipe: Recipe, written: Written) -> dict[str, Any]:
    context = written.prompt_tokens + recipe.rollouts.max_new_tokens
    evaluation = recipe.evaluation
    section = "actor_rollout_ref.rollout"
    return {
        f"{section}.name": "vllm",
        f"{section}.n": recipe.rollouts.per_prompt,
        f"{section}.temperature": recipe.rollouts.temperature,
        f"{section}.top_p": 1.0,
        f"{section}.top_k": -1,
        f"{section}.max_num_seqs": max(MAX_NUM_SEQS, recipe.rollouts.per_prompt),
        f"{section}.max_num_batched_tokens": max(16_384, context),
        f"{section}.max_model_len": context,
        f"{section}.enable_prefix_caching": True,
        f"{section}.logprobs_mode": "processed_logprobs",
        f"{section}.calculate_log_probs": True,
        f"{section}.tensor_model_parallel_size": 1,
        f"{section}.gpu_memory_utilization": 0.6,
        f"{section}.seed": derive_seed(recipe.seed, "verl rollouts") % SEED_RANGE,
        f"+{section}.engine_kwargs.vllm.disable_cascade_attn": True,
        f"{section}.val_kwargs.n": evaluation.rollouts,
        f"{section}.val_kwargs.do_sample": True,
        f"{section}.val_kwargs.temperature": evaluation.temperature,
        f"{section}.val_kwargs.top_p": evaluation.top_p,
    }


def _actor(recipe: Recipe, written: Written) -> dict[str, Any]:
    algorithm, optimizer, model = recipe.algorithm, recipe.optimizer, recipe.model
    context = written.prompt_tokens + recipe.rollouts.max_new_tokens
    actor = "actor_rollout_ref.actor"
    clip = {"eps_low": 0.2, "eps_high": 0.27, "dual_clip": 3.0, **algorithm.loss.args}
    found: dict[str, Any] = {
        "actor_rollout_ref.model.path": written.model,
        "actor_rollout_ref.model.custom_chat_template": written.chat_template,
        "actor_rollout_ref.model.enable_gradient_checkpointing": model.gradient_checkpointing,
        "actor_rollout_ref.model.use_remove_padding": True,
        f"{actor}.policy_loss.loss_mode": loss_name(algorithm.loss),
        f"{actor}.clip_ratio_low": clip["eps_low"],
        f"{actor}.clip_ratio_high": clip["eps_high"],
        f"{actor}.clip_ratio_c": clip["dual_clip"] or 3.0,
        f"{actor}.loss_agg_mode": AGGREGATIONS[algorithm.aggregation],
        f"{actor}.ppo_mini_batch_size": max(1, recipe.rollouts.prompts_per_step // algorithm.minibatches),
        f"{actor}.ppo_epochs": 1,
        f"{actor}.use_dynamic_bsz": True,
        f"{actor}.ppo_max_token_len_per_gpu": max(32_768, context),
        f"{actor}.use_kl_loss": algorithm.kl_weight > 0,
        f"{actor}.kl_loss_coef": algorithm.kl_weight,
        f"{actor}.kl_loss_type": KL[algorithm.kl],
        f"{actor}.entropy_coeff": 0,
        f"{actor}.grad_clip": optimizer.max_grad_norm,
        f"{actor}.data_loader_seed": derive_seed(recipe.seed, "verl mini-batches") % SEED_RANGE,
        f"{actor}.optim.lr": effective_lr(recipe),
        f"{actor}.optim.lr_scheduler_type": optimizer.schedule,
        f"{actor}.optim.lr_warmup_steps": optimizer.warmup_steps,
        f"{actor}.optim.weight_decay": optimizer.weight_decay,
        f"{actor}.optim.betas": [optimizer.beta1, optimizer.beta2],
        f"{actor}.optim.clip_grad": optimizer.max_grad_norm,
        f"{actor}.fsdp_config.model_dtype": "fp32",
        f"{actor}.fsdp_config.dtype": "float32" if model.compute == "float32" else "bfloat16",
    }
    if algorithm.aggregation == "constant":
        found[f"{actor}.loss_scale_factor"] = recipe.rollouts.max_new_tokens
    if lora := model.lora:
        found["actor_rollout_ref.model.lora_rank"] = lora.rank
        found["actor_rollout_ref.model.lora_alpha"] = lora.alpha
        found["actor_rollout_ref.model.target_modules"] = (
            lora.targets if isinstance(lora.targets, str) else list(lora.targets)
        )
        found["actor_rollout_ref.rollout.load_format"] = "safetensors"
    return found


def _algorithm(recipe: Recipe) -> dict[str, Any]:
    algorithm, correction = recipe.algorithm, recipe.algorithm.correction
    band = {"low": 0.5, "high": 5.0, **correction.args}
    threshold = (
        f"{max(float(band['low']), 1e-6)}_{float(band['high'])}" if correction.name == "icepop" else band["high"]
    )
    return {
        "algorithm.adv_estimator": registered_name(algorithm.advantage),
        "algorithm.use_kl_in_reward": False,
        "algorithm.filter_groups.enable": recipe.selection.drop_constant,
        "algorithm.filter_groups.metric": "acc",
        "algorithm.rollout_correction.rollout_is": None if correction.name == "none" else "token",
        "algorithm.rollout_correction.rollout_is_threshold": threshold,
        "algorithm.rollout_correction.bypass_mode": False,
        "critic.enable": False,
    }


def _trainer(recipe: Recipe, written: Written) -> dict[str, Any]:
    evaluation, samples = recipe.evaluation, recipe.samples_per_step
    steps_per_pass = max(1, written.rows // recipe.rollouts.prompts_per_step)
    return {
        "trainer.use_v1": True,
        "trainer.v1.trainer_mode": "sync",
        "trainer.nnodes": written.nodes,
        "trainer.n_gpus_per_node": written.gpus_per_node,
        "trainer.total_training_steps": recipe.steps,
        "trainer.total_epochs": math.ceil(recipe.steps / steps_per_pass) + 1,
        "trainer.save_freq": recipe.checkpoint.every,
        "trainer.max_actor_ckpt_to_keep": recipe.checkpoint.keep,
        "trainer.resume_mode": "auto",
        "trainer.default_local_dir": str(written.directory / "checkpoints"),
        "trainer.val_before_train": bool(evaluation.heldout_prompts),
        "trainer.test_freq": evaluation.every if evaluation.every and evaluation.heldout_prompts else -1,
        "trainer.project_name": "brorl",
        "trainer.experiment_name": recipe.name,
        "trainer.logger": ["console", *recipe.trackers],
        "trainer.rollout_data_dir": None,
        "transfer_queue.backend.SimpleStorage.total_storage_size": max(100_000, 4 * samples),
    }


def text(key: str, value: Any) -> str:
    """One line of Hydra's override grammar; strings are quoted, so that ``0.5_5.0`` and templates stay strings."""
    return f"{key}={_literal(value)}"


def _literal(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(_literal(v) for v in value)}]"  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return repr(value)


def beyond_verl(recipe: Recipe) -> list[str]:
    """What the recipe asks for and verl 0.9.1 does otherwise, one sentence each."""
    selection, algorithm, reference = recipe.selection, recipe.algorithm, recipe.reference
    found = (
        selection.drop_constant
        and f"selection.max_rounds: {selection.max_rounds} is no limit there: verl's V1 trainer draws prompts until "
        "the batch is full, for ever if no prompt has signal",
        selection.oversample > 1 and "selection.oversample: verl replaces each dropped group by one new prompt",
        selection.carry_surplus and "selection.carry_surplus: there is no surplus, and none is carried over",
        selection.retire_after is not None and "selection.retire_after: solved prompts are drawn again",
        selection.downsample is not None
        and f"selection.downsample: all {recipe.rollouts.per_prompt} rollouts of a group are trained on",
        selection.allocation.name != "uniform" and "selection.allocation: every prompt gets all of its rollouts",
        algorithm.aggregation == "prompt_mean"
        and "algorithm.aggregation prompt_mean: verl's loss does not know prompts; the mean over sequences instead",
        algorithm.truncated == "mask"
        and "algorithm.truncated: mask: a truncated response scores 0 instead of leaving the update",
        algorithm.kl == "k2" and algorithm.kl_weight > 0 and "algorithm.kl k2: verl does not clamp the log-ratio to 10",
        bool(algorithm.shaping)
        and "algorithm.shaping: applied to each response alone; brorl also holds truncated ones below their group's "
        "finished ones",
        algorithm.minibatches > 1
        and recipe.rollouts.prompts_per_step % algorithm.minibatches != 0
        and "algorithm.minibatches does not divide prompts_per_step: verl pads the last mini-batch",
        algorithm.minibatches > 1
        and "mini-batches: verl sorts rows over ranks by length, so a mini-batch is not made of whole groups",
        (reference.reset_every or reference.reset_on_kl or reference.reset_on_stall) is not None
        and "reference resets: verl keeps its first reference policy. Stop the run at a reset, merge the checkpoint "
        "(python -m verl.model_merger) and export again with model.path set to it",
        recipe.checkpoint.keep_best and "checkpoint.keep_best: verl keeps the newest only",
        recipe.model.dtype == "float64" and "model.dtype: float64 weights are float32 there",
        recipe.model.warm_optimizer
        and recipe.model.path == "brorl-tiny"
        and "model.warm_optimizer: AdamW starts cold, without the state beside the model",
        bool(recipe.probe.every or recipe.probe.snr_every) and "probe: not measured",
        recipe.evaluation.training_prompts > 0 and "evaluation.training_prompts: only held-out prompts are evaluated",
        max(recipe.evaluation.ks) > 1
        and "evaluation.ks: verl's best@k is a bootstrap; for the unbiased pass@k set trainer.validation_data_dir and "
        "give the dumps to brorl analyze",
        any(isinstance(task, FileTask) and task.verifier and ":" in task.verifier for task in recipe.tasks)
        and "your own verifier: its module must be importable on every node",
        "verification.max_error_share: an error in verl's log, where brorl stops the run",
        "guards, report and the trie (one forward pass per distinct prefix): brorl's own; verl trains on N flat "
        "sequences",
    )
    return [sentence for sentence in found if sentence]
