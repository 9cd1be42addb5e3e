"""From a recipe to everything a run needs, opened and closed together."""

import math
import traceback
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from brorl.algorithms.advantages import ADVANTAGES, Estimator, GroupRewards, estimate
from brorl.algorithms.allocation import ALLOCATIONS, Allocation
from brorl.algorithms.losses import CORRECTIONS, LOSSES, UNREAD, CorrectionSettings, Loss, LossInputs, LossSettings
from brorl.algorithms.shaping import SHAPINGS, Responses, Shaping, shape
from brorl.changes import recipe_changes
from brorl.config import Recipe, Ref
from brorl.engines.local import LocalEngine, stop_token_ids
from brorl.engines.protocol import Sampling
from brorl.errors import RecipeError
from brorl.learner.allocator import keep_freed_memory
from brorl.learner.attention import use_trie_attention
from brorl.learner.learner import OPTIMIZER_FILE, Learner, LearnerSettings
from brorl.learner.lora import Lora, copy_sharing
from brorl.learner.model import load_model, model_directory
from brorl.learner.objective import Objective
from brorl.phases import Report, silent
from brorl.prompts import Data, open_data
from brorl.recipe_file import with_absolute_paths
from brorl.resolving import checked_arguments, resolve
from brorl.rollouts import Rollouts
from brorl.rundir import RunDirectory
from brorl.trackers import check_trackers, open_trackers
from brorl.trainer import Trainer
from brorl.verifiers.pool import VerifierPool
from brorl.watching import Watch

DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a recipe is made of, ready to work."""

    tokenizer: PreTrainedTokenizerBase
    learner: Learner
    rollouts: Rollouts
    advantage: Estimator
    shapings: Mapping[str, Shaping]
    allocation: Allocation
    data: Data
    sampling: Sampling
    evaluation_sampling: Sampling


@contextmanager
def open_trainer(
    recipe: Recipe,
    *,
    resume: Path | None = None,
    path: Path | None = None,
    allow_changes: bool = False,
    report: Report = silent,
) -> Iterator[Trainer]:
    """A trainer at the start of a new run (in `path`, or the first free directory), or where the run `resume` stands.

    A run is open to one trainer at a time. `allow_changes` lets a resumed run go on with a recipe or with data that
    are not those it was started with.

    Raises:
        UserError: whatever of the recipe, its files or the directory cannot be used.
    """
    recipe = with_absolute_paths(recipe)
    with ExitStack() as stack:
        run, changes = None, {}
        if resume is not None:
            run = RunDirectory.open(resume)
            stack.enter_context(run.locked())
            changes = recipe_changes(run.recipe(), recipe, allowed=allow_changes)
        parts = stack.enter_context(open_parts(recipe))
        if run is None:
            run = RunDirectory.create(recipe, path=path)
            stack.enter_context(run.locked())
            if parts.data.contamination is not None:
                run.write_contamination(parts.data.contamination.as_json(), parts.data.contamination.listed())
        trainer = Trainer(
            recipe=recipe,
            rollouts=parts.rollouts,
            learner=parts.learner,
            tokenizer=parts.tokenizer,
            prompt_at=parts.data.prompt_at,
            advantage=parts.advantage,
            shapings=parts.shapings,
            allocation=parts.allocation,
            sampling=parts.sampling,
            evaluation_sampling=parts.evaluation_sampling,
            evaluation_sets=parts.data.evaluation_sets,
            probe_prompts=parts.data.probe_prompts,
            span=parts.data.span,
            fingerprint=parts.data.fingerprint,
            run=run,
            watch=Watch(run=run, thresholds=recipe.guards),
            report=report,
        )
        if resume is not None:
            trainer.restore(changes, allow_changes=allow_changes)
        trainer.track = stack.enter_context(open_trackers(run, recipe, trainer.progress.step))
        yield trainer


@contextmanager
def open_parts(recipe: Recipe) -> Iterator[Parts]:
    """Load the model, find the prompts, start the verifiers; everything is closed at the end.

    Raises:
        UserError: as `open_trainer`.
    """
    check_trackers(recipe.trackers)
    advantage = resolve(recipe.algorithm.advantage, ADVANTAGES, "algorithm.advantage")
    shapings = resolve_shapings(recipe)
    check_estimator(recipe, advantage, shapings)
    allocation = resolve_allocation(recipe)
    device = compute_device(recipe)
    settings = replace(learner_settings(recipe), compute_dtype=compute_dtype(recipe, device))
    model, tokenizer = load_model(recipe.model.path, DTYPES[recipe.model.dtype])
    model.to(device)  # type: ignore[arg-type]
    use_trie_attention(model)
    keep_freed_memory(model)
    stops = stop_token_ids(model, tokenizer)
    verification = recipe.verification
    with VerifierPool(
        workers=verification.workers, deadline=verification.deadline_seconds, memory_mib=verification.memory_mib
    ) as pool:
        data = open_data(recipe, tokenizer, pool)
        check_lengths(recipe, model, data)
        # Beside an adapter the engine computes with merged weights; what no adapter touches stays one and the same.
        sampled = copy_sharing(model, model.parameters()) if settings.lora else model
        learner = Learner(model, settings)
        directory = model_directory(recipe.model.path)
        if recipe.model.warm_optimizer and not settings.lora and (directory / OPTIMIZER_FILE).exists():
            learner.load_optimizer(directory)
        engine = LocalEngine(
            sampled, kv_budget_mib=recipe.rollouts.kv_budget_mib, compute_dtype=learner.settings.compute_dtype
        )
        yield Parts(
            tokenizer=tokenizer,
            learner=learner,
            rollouts=Rollouts(engine, pool, tokenizer),
            advantage=advantage,
            shapings=shapings,
            allocation=allocation,
            data=data,
            sampling=Sampling(
                max_new_tokens=recipe.rollouts.max_new_tokens,
                stop_token_ids=stops,
                temperature=recipe.rollouts.temperature,
            ),
            evaluation_sampling=Sampling(
                max_new_tokens=recipe.rollouts.max_new_tokens,
                stop_token_ids=stops,
                temperature=recipe.evaluation.temperature,
                top_p=recipe.evaluation.top_p,
            ),
        )


def compute_device(recipe: Recipe) -> torch.device:
    """Where the model lies: `model.device`, or for ``auto`` a GPU where there is one.

    Raises:
        RecipeError: a GPU is asked for, and there is none.
    """
    wanted, available = recipe.model.device, torch.cuda.is_available()
    if wanted == "cuda" and not available:
        raise RecipeError(
            f"model.device is cuda, and PyTorch {torch.__version__} finds no GPU it can use: install a PyTorch built "
            "for CUDA and check the driver, or set model.device: cpu"
        )
    return torch.device("cuda" if available and wanted != "cpu" else "cpu")


def compute_dtype(recipe: Recipe, device: torch.device) -> torch.dtype | None:
    """What matrix products are computed in, in learner and engine alike; None is the weights' dtype.

    Weights and optimizer stay in `model.dtype` (master weights); log-probabilities are taken in float32 at least.
    """
    settings = recipe.model
    if settings.compute == "auto":
        half = device.type == "cuda" and settings.dtype == "float32" and torch.cuda.is_bf16_supported()
        return torch.bfloat16 if half else None
    return torch.bfloat16 if settings.compute == "bfloat16" else None


def resolve_shapings(recipe: Recipe) -> dict[str, Shaping]:
    """The recipe's shaping functions by name, each tried on a short right and a long wrong response.

    Raises:
        RecipeError: an unknown name, or arguments that make no sense or have no effect.
    """
    found: dict[str, Shaping] = {}
    for ref in recipe.algorithm.shaping:
        where = f"algorithm.shaping {ref.name!r}"
        found[ref.name] = resolve(ref, SHAPINGS, "algorithm.shaping")
        try:
            shape(_example(recipe), {ref.name: found[ref.name]})
        except (ValueError, TypeError) as error:
            raise RecipeError(f"{where}: {error}") from error
        except Exception as error:
            raise RecipeError(f"{where} fails on an example, {_last_line(error)}") from error
        if ref.name == "stop_properly" and ref.args.get("coefficient") == 0:
            raise RecipeError(f"{where}: coefficient 0 has no effect, a truncated response already scores 0; use less")
    return found


def resolve_allocation(recipe: Recipe) -> Allocation:
    """How the recipe divides rollouts over prompts.

    Raises:
        RecipeError: an unknown name, or rounds and numbers that make no sense.
    """
    ref = recipe.selection.allocation
    try:
        return resolve(ref, ALLOCATIONS, "selection.allocation")(recipe.rollouts.per_prompt)
    except (ValueError, TypeError) as error:
        raise RecipeError(f"selection.allocation {ref.name!r}: {error}") from error


def _example(recipe: Recipe) -> Responses:
    """A right response of one token, and a wrong one at the length limit."""
    limit = recipe.rollouts.max_new_tokens
    return Responses(
        rewards=np.array([1.0, 0.0]),
        lengths=np.array([1, limit]),
        truncated=np.array([False, recipe.algorithm.truncated == "zero"]),
        step=0,
        max_new_tokens=limit,
    )


def check_estimator(recipe: Recipe, advantage: Estimator, shapings: Mapping[str, Shaping]) -> None:
    """Refuse an estimator that fails, or sees no difference, where some of N rollouts are right.

    Raises:
        RecipeError: with the estimator's own words.
    """
    n, example = recipe.selection.downsample or recipe.rollouts.per_prompt, _example(recipe)
    rewards, _ = shape(example, shapings)
    groups = [
        GroupRewards(
            rewards=rewards, counts=np.array([c, n - c]), lengths=example.lengths, correct=np.array([True, False])
        )
        for c in {1, n // 2}
    ]
    name = recipe.algorithm.advantage.name
    try:
        found = estimate(advantage, groups)
    except ValueError as error:
        raise RecipeError(f"algorithm.advantage {name!r} cannot work with {n} rollouts per prompt: {error}") from error
    except Exception as error:
        raise RecipeError(f"algorithm.advantage {name!r} fails on an example, {_last_line(error)}") from error
    if not any(values.any() for values in found):
        raise RecipeError(
            f"algorithm.advantage {name!r} gives no signal with {n} rollouts per prompt, whatever they earn: raise "
            "rollouts.per_prompt, or change its arguments"
        )


def learner_settings(recipe: Recipe) -> LearnerSettings:
    """The learner's part of a recipe.

    Raises:
        RecipeError: an unknown loss or correction, or arguments it does not take or read.
    """
    algorithm, optimizer = recipe.algorithm, recipe.optimizer
    loss = resolve(Ref(name=algorithm.loss.name), LOSSES, "algorithm.loss")
    resolve(Ref(name=algorithm.correction.name), CORRECTIONS, "algorithm.correction")
    for where, ref in (("algorithm.loss", algorithm.loss), ("algorithm.correction", algorithm.correction)):
        unread = sorted(UNREAD.get(ref.name, frozenset()) & ref.args.keys())
        if unread:
            raise RecipeError(f"{where} {ref.name!r} does not read {', '.join(unread)}: drop it")
    try:
        clip = LossSettings(**checked_arguments(LossSettings, algorithm.loss.args, "algorithm.loss"))
        band = CorrectionSettings(
            **checked_arguments(CorrectionSettings, algorithm.correction.args, "algorithm.correction")
        )
        objective = Objective(
            loss=algorithm.loss.name if algorithm.loss.name in LOSSES else loss,
            clip=clip,
            kl=algorithm.kl,
            kl_coefficient=algorithm.kl_weight,
            correction=algorithm.correction.name,
            band=band,
        )
    except ValueError as error:
        raise RecipeError(f"algorithm: {error}") from error
    if algorithm.loss.name not in LOSSES:
        _try_loss(loss, clip, algorithm.loss.name)
    exploding = recipe.guards["exploding_gradient"]
    return LearnerSettings(
        objective=objective,
        temperature=recipe.rollouts.temperature,
        betas=(optimizer.beta1, optimizer.beta2),
        weight_decay=optimizer.weight_decay,
        max_grad_norm=optimizer.max_grad_norm,
        exploding_norm=math.inf if exploding is None else exploding * optimizer.max_grad_norm,
        max_nodes=optimizer.max_nodes,
        max_tokens=optimizer.max_tokens,
        gradient_checkpointing=recipe.model.gradient_checkpointing,
        lora=Lora(**dict(recipe.model.lora), seed=recipe.seed) if recipe.model.lora else None,
    )


def _try_loss(loss: Loss, clip: LossSettings, name: str) -> None:
    """Refuse a loss of the user's own that gives no sum with a gradient and its metrics."""
    ones = torch.ones(2, dtype=torch.float64)
    inputs = LossInputs(
        logprobs=(-ones).requires_grad_(),
        old_logprobs=-ones,
        correction=ones,
        positive=ones,
        negative=-ones,
        total=ones,
    )
    where = f"algorithm.loss {name!r}"
    try:
        total, metrics = loss(inputs, clip)
        dict(metrics)
        total.sum().backward()
    except Exception as error:
        raise RecipeError(f"{where} fails on two nodes, {_last_line(error)}") from error
    if total.ndim:
        raise RecipeError(f"{where} must return a sum, a tensor without dimensions, not one of shape {[*total.shape]}")


def _last_line(error: BaseException) -> str:
    """An exception of somebody's own function: what it says, and where."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({frame.filename}, line {frame.lineno})"


def check_lengths(recipe: Recipe, model: PreTrainedModel, data: Data) -> None:
    """Refuse a recipe whose prompts and responses do not fit into the model's context.

    Raises:
        RecipeError: the context is too short; the message says for which prompt.
    """
    context = model.config.get_text_config().max_position_embeddings
    seen = [p for prompts in (*data.evaluation_sets.values(), data.probe_prompts) for p in prompts]
    seen += [p for position in range(recipe.rollouts.prompts_per_step) if (p := data.prompt_at(position)) is not None]
    for prompt in seen:
        needed = len(prompt.token_ids) + recipe.rollouts.max_new_tokens
        if needed > context:
            raise RecipeError(
                f"prompt {prompt.id} has {len(prompt.token_ids)} tokens; with max_new_tokens = "
                f"{recipe.rollouts.max_new_tokens} it needs a context of {needed}, {recipe.model.path} has {context}. "
                "Lower rollouts.max_new_tokens, or set prompt.max_tokens with prompt.overlong: drop"
            )
