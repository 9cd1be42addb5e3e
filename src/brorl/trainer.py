"""The training loop. One step fits on a screen: collect, update, hand the weights back, record.

The trainer owns the order of things and what must survive a stop; drawing, grading, gradients and files are the
business of the parts it is given.
"""

import json
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from brorl.agreement import Updates, measure_agreement
from brorl.algorithms.advantages import Estimator
from brorl.algorithms.allocation import Allocation
from brorl.algorithms.schedules import broadened, learning_rate, reset_reason
from brorl.algorithms.selection import count_solved, retired
from brorl.algorithms.shaping import Shaping
from brorl.changes import data_changes
from brorl.collection import Collected, PromptAt, collect, next_prompts
from brorl.config import Recipe
from brorl.engines.protocol import Sampling
from brorl.errors import RunError, UserError
from brorl.evaluation.evaluate import Evaluation, evaluate
from brorl.group import Fate, Prompt, ScoredGroup
from brorl.learner.checkpoint import (
    checkpoint_path,
    drop_newer,
    latest_checkpoint,
    load_checkpoint,
    mark_best,
    newest_size,
    prune,
    save_checkpoint,
)
from brorl.learner.learner import Learner
from brorl.metrics import error_share
from brorl.phases import Phases, Report, silent
from brorl.probing import Probe, after_update, before_update
from brorl.recording import step_record
from brorl.rollouts import Rollouts
from brorl.rundir import RunDirectory
from brorl.storage import read_groups, write_groups
from brorl.trackers import Track, untracked
from brorl.updating import shaped_groups, update_policy
from brorl.watching import Watch


class _Interrupted(Exception):
    """Stop during an evaluation: it is left undone, and repeated when the run is resumed."""


@dataclass(slots=True)
class Progress:
    """Where a run stands; all of it is in every checkpoint."""

    step: int = 0
    """steps done"""
    position: int = 0
    """first unused position of the prompt stream"""
    solved: dict[str, int] = field(default_factory=dict[str, int])
    """prompt id -> times in a row it came out all right; kept where prompts retire"""
    judged: int = -1
    """the last step whose held-out score was looked at for a stall"""
    best_heldout: float | None = None
    stalled: int = 0
    """evaluations in a row without a better held-out pass@1"""
    reference_reset: str | None = None
    """why the reference was reset since the last step's record"""


@dataclass(slots=True, kw_only=True)
class Trainer:
    """One run in progress."""

    recipe: Recipe
    rollouts: Rollouts
    learner: Learner
    tokenizer: Any
    prompt_at: PromptAt
    advantage: Estimator
    shapings: Mapping[str, Shaping]
    allocation: Allocation
    sampling: Sampling
    evaluation_sampling: Sampling
    evaluation_sets: Mapping[str, Sequence[Prompt]]
    probe_prompts: Sequence[Prompt]
    span: int | None
    """stream positions that hold every prompt; None where the stream is endless"""
    fingerprint: Mapping[str, Any]
    """of the data: a resumed run must see the same, unless a change is allowed"""
    run: RunDirectory
    watch: Watch
    track: Track = untracked
    report: Report = silent
    progress: Progress = field(default_factory=Progress)
    carried: tuple[ScoredGroup, ...] = ()
    stop_requested: bool = False
    interrupted: bool = False
    """an evaluation was left undone"""
    over: str = ""
    """why the run ended before its last step, where nothing is left to do"""
    saving_seconds: float = 0.0
    """of the checkpoint before this step"""

    def train(self) -> Iterator[dict[str, Any]]:
        """Run the remaining steps, yielding each step's metrics.

        Evaluates before the first step, on the recipe's schedule, and at the end. Stops early, saved and resumable,
        when `stop_requested` is set.

        Raises:
            RunError: nothing to learn from in three steps in a row, too many gradings failed, or the disk is full.
                What was done up to then is saved.
        """
        try:
            yield from self._steps()
        except UserError as error:
            self.run.note(status="failed", reason=str(error))
            raise
        except Exception as error:  # of a function of somebody's own, say: the traceback is theirs to see
            self.run.note(status="failed", reason=f"{type(error).__name__}: {error}")
            raise
        if self.over and not self.interrupted:
            self.run.note(status="finished", reason=self.over)
        else:
            done = self.progress.step >= self.recipe.steps and not self.interrupted
            self.run.note(status="finished" if done else "stopped")

    def _steps(self) -> Iterator[dict[str, Any]]:
        self.run.note(status="running")
        self._ensure_saved()
        self._evaluate_when_due()
        while self.progress.step < self.recipe.steps and not self.stop_requested and not self._all_retired():
            yield self.step()
            if self.progress.step < self.recipe.steps and not self._all_retired():
                why = self.watch.reason_to_stop(newest_size(self.run.checkpoints))
                if why is not None:
                    self._give_up(why)
            self._evaluate_when_due()
        self._ensure_saved()
        if self._all_retired():
            self._end_retired()

    def step(self) -> dict[str, Any]:
        """One step of broad RLVR."""
        phases, number = Phases(self.report), self.progress.step
        lr = self._lr()
        collected = collect(
            self.rollouts,
            self.prompt_at,
            self.recipe,
            self.sampling,
            step=number,
            position=self.progress.position,
            allocation=self.allocation,
            carried=self.carried,
            solved=self.progress.solved,
            span=self.span,
            phases=phases,
        )
        self._check_errors(collected.drawn)
        groups = shaped_groups(collected.selection.trained, self.recipe, self.shapings, number)
        collected = replace(collected, selection=replace(collected.selection, trained=tuple(groups)))
        figures: dict[str, Any] = {}
        probe = self._probe(number, phases)
        agreement = self._agreement(number, phases)
        if groups:
            figures = update_policy(self.learner, groups, self.recipe, self.advantage, lr, phases, self.allocation)
            self.rollouts.engine.load_weights(self.learner.weights(), self.learner.policy_version)
        if agreement:
            figures["snr"] = agreement
        if probe:
            figures["probe"] = after_update(probe, self.learner, self.recipe, phases)
        self._advance(collected, figures)
        with phases.timed("groups"):
            self.run.write_step(number, self._decided(collected))
        record = step_record(
            collected,
            self.recipe,
            self.allocation,
            figures,
            phases,
            step=number,
            policy_version=self.learner.policy_version,
            lr=lr,
            solved=self.progress.solved,
            reference_reset=self.progress.reference_reset,
            saving_seconds=self.saving_seconds,
        )
        self.progress.reference_reset = None
        # Metrics and groups first: a resume cuts back what lies after a checkpoint, and cannot add what lies before it.
        self.run.append_metrics(record)
        self.watch.add(record)
        self.track(number, record)
        if self.progress.step % self.recipe.checkpoint.every == 0:
            self.save()
        return record

    def _probe(self, number: int, phases: Phases) -> Probe | None:
        every = self.recipe.probe.every
        if not every or number % every:
            return None
        return before_update(
            self.rollouts,
            self.learner,
            self.probe_prompts,
            self.recipe,
            self.sampling,
            self.run,
            step=number,
            phases=phases,
        )

    def _agreement(self, number: int, phases: Phases) -> dict[str, Any] | None:
        """Gradients of the weights before the update, from disjoint sets of rollouts of the probe's prompts."""
        every = self.recipe.probe.snr_every
        if not every or number % every:
            return None
        updates = Updates(recipe=self.recipe, learner=self.learner, advantage=self.advantage, shapings=self.shapings)
        return measure_agreement(self.rollouts, self.probe_prompts, self.sampling, updates, step=number, phases=phases)

    def _lr(self) -> float:
        settings = self.recipe.optimizer
        return learning_rate(
            self.progress.step,
            lr=broadened(settings.lr, self.recipe.trained_samples_per_step, settings.base_samples),
            steps=self.recipe.steps,
            warmup_steps=settings.warmup_steps,
            schedule=settings.schedule,
        )

    def _advance(self, collected: Collected, figures: Mapping[str, Any]) -> None:
        progress, selection, reference = self.progress, collected.selection, self.recipe.reference
        progress.step += 1
        progress.position = collected.position
        if not selection.trained:
            warnings.warn(
                f"step {progress.step - 1}: not one of {len(collected.drawn)} groups carries signal; update skipped",
                stacklevel=3,
            )
        if self.recipe.selection.carry_surplus:
            self.carried = tuple(g for g in selection.set_aside if g.fate is Fate.SURPLUS)
        if self.recipe.selection.retire_after:
            threshold = self.recipe.verification.correct_threshold
            progress.solved = count_solved(progress.solved, collected.drawn, threshold)
        why = reset_reason(progress.step, figures.get("kl"), every=reference.reset_every, on_kl=reference.reset_on_kl)
        if why:
            self._reset_reference(why)

    def _reset_reference(self, why: str) -> None:
        self.learner.reset_reference(clear_optimizer=self.recipe.reference.clear_optimizer)
        self.progress.reference_reset = why

    def _reset_when_stalled(self) -> None:
        """Reset the reference after enough evaluations without a better held-out pass@1; each is looked at once."""
        progress, limit = self.progress, self.recipe.reference.reset_on_stall
        if limit is None or progress.judged >= progress.step or progress.step >= self.recipe.steps:
            return
        file = self.run.evaluation_file(progress.step, "held-out")
        score = json.loads(file.read_text(encoding="utf-8"))["pass_at"]["1"]["value"]
        progress.judged = progress.step
        if progress.best_heldout is None or score > progress.best_heldout:
            progress.best_heldout, progress.stalled = score, 0
            return
        progress.stalled += 1
        if progress.stalled >= limit:
            progress.stalled = 0
            self._reset_reference("stall")

    def _all_retired(self) -> bool:
        """No prompt is left to draw."""
        gone = retired(self.progress.solved, self.recipe.selection.retire_after)
        if not gone:
            return False
        left, _ = next_prompts(self.prompt_at, self.progress.position, 1, passed_over=gone, span=self.span)
        return not left

    def _end_retired(self) -> None:
        times = self.recipe.selection.retire_after
        self.over = (
            f"all {len(retired(self.progress.solved, times))} prompts are retired after {self.progress.step} steps: "
            f"each came out all right {times} times in a row. Give harder or more prompts to go on"
        )
        warnings.warn(self.over, stacklevel=2)
        self._evaluate()

    def _decided(self, collected: Collected) -> list[ScoredGroup]:
        """The step's groups, less those carried into the next step: they are written where they are trained on."""
        carried = {id(group) for group in self.carried}
        groups = (*collected.selection.trained, *collected.selection.set_aside)
        return [group for group in groups if id(group) not in carried]

    def _check_errors(self, drawn: Sequence[ScoredGroup]) -> None:
        share, limit = error_share(drawn), self.recipe.verification.max_error_share
        if share > limit:
            self._give_up(
                f"step {self.progress.step}: {share:.1%} of the rollouts could not be scored (limit {limit:.1%}, "
                "verification.max_error_share). Look for a verifier that raises or reference answers it cannot read"
            )

    def _ensure_saved(self) -> None:
        if not checkpoint_path(self.run.checkpoints, self.progress.step).exists():
            self.save()

    def _give_up(self, why: str) -> None:
        self._ensure_saved()
        raise RunError(f"{why}. The run is saved in {self.run.path}")

    def _evaluate_when_due(self) -> None:
        step, every = self.progress.step, self.recipe.evaluation.every
        if step in (0, self.recipe.steps) or (every and step % every == 0):
            self._evaluate()

    def _evaluate(self) -> None:
        """Evaluate, and draw the conclusions; nothing of it where it is interrupted."""
        try:
            self.evaluate()
        except _Interrupted:
            self.interrupted = True
            return
        step = self.progress.step
        # Those found on disk too: a tracker forgets what a killed run had sent for the step it goes on with.
        scores = {name: self.run.read_scores(name)[step] for name in self.evaluation_sets}
        self.track(step, {"evaluation": scores})
        self._reset_when_stalled()
        self._keep_best()

    def _keep_best(self) -> None:
        """Mark this step's checkpoint where its held-out pass@1 is the best so far; the first of equals stays."""
        if not self.recipe.checkpoint.keep_best:
            return
        scores = {step: data["pass_at"]["1"]["value"] for step, data in self.run.read_scores("held-out").items()}
        step = self.progress.step
        if step != max(scores, key=lambda s: (scores[s], -s)):
            return
        self._ensure_saved()
        mark_best(self.run.checkpoints, step)
        prune(self.run.checkpoints, self.recipe.checkpoint.keep)
        self.run.note(best={"step": step, "score": scores[step]})

    def _report_evaluation(self, name: str, done: int, total: int) -> None:
        if self.stop_requested:
            raise _Interrupted
        self.report(f"evaluating {name}", done, total)

    def evaluate(self) -> dict[str, Evaluation]:
        """Score the policy on every evaluation set, unless this step's scores are already on disk."""
        settings, found = self.recipe.evaluation, {}
        for name, prompts in self.evaluation_sets.items():
            if self.run.evaluation_file(self.progress.step, name).exists():
                continue
            self._report_evaluation(name, 0, len(prompts))
            found[name], groups = evaluate(
                self.rollouts,
                prompts,
                name=name,
                per_prompt=settings.rollouts,
                ks=settings.ks,
                sampling=self.evaluation_sampling,
                seed=self.recipe.seed,
                correct_threshold=self.recipe.verification.correct_threshold,
                phases=Phases(lambda _, done, total, name=name: self._report_evaluation(name, done, total)),
            )
            self.run.write_evaluation(self.progress.step, name, found[name].as_json(), groups)
        return found

    def save(self) -> Path:
        """Write a checkpoint of everything; see `brorl.learner.checkpoint`."""
        started = time.perf_counter()
        path = save_checkpoint(
            self.run.checkpoints,
            self.progress.step,
            self.learner,
            self.tokenizer,
            state={"progress": asdict(self.progress), "data": self.fingerprint},
            extra=lambda directory: write_groups(directory / "carried.parquet", self.carried),
            keep=self.recipe.checkpoint.keep,
        )
        self.saving_seconds = time.perf_counter() - started
        return path

    def restore(
        self, recipe_changes: Mapping[str, tuple[Any, Any]] | None = None, *, allow_changes: bool = False
    ) -> None:
        """Take up the run at its newest sound checkpoint and cut the records back to it.

        Changes that are allowed are written down in run.json, with the step from which they hold, and the recipe
        becomes the run's own.

        Raises:
            RunError: no sound checkpoint, or the data has changed since and that is not allowed.
        """
        recipe_changes = recipe_changes or {}
        if not any(self.run.checkpoints.glob("step_*")) and not self.run.read_metrics():
            self.run.cut_back(0)  # killed before its first checkpoint: nothing was done
            return
        directory = latest_checkpoint(self.run.checkpoints)
        state = load_checkpoint(directory, self.learner)
        data = data_changes(state["data"], self.fingerprint)
        if data and not allow_changes:
            raise RunError(
                f"{self.run.path}: the data has changed since this run was started, so its place in the data means "
                f"nothing any more: {'; '.join(data)}. Restore the data, or go on from this place in the new data with "
                "--allow-changes (prompts may then come again, or never)"
            )
        # Else what running out of memory left of them.
        if "optimizer.max_nodes" in recipe_changes:
            self.learner.max_nodes = self.recipe.optimizer.max_nodes
        if "optimizer.max_tokens" in recipe_changes:
            self.learner.max_tokens = self.recipe.optimizer.max_tokens
        self.progress = Progress(**state["progress"])
        self.carried = tuple(read_groups(directory / "carried.parquet"))
        self.rollouts.engine.load_weights(self.learner.weights(), self.learner.policy_version)
        self.run.cut_back(self.progress.step)
        drop_newer(self.run.checkpoints, self.progress.step)
        prune(self.run.checkpoints, self.recipe.checkpoint.keep)
        self.watch.take_up()
        if recipe_changes or data:
            self.run.accept_changes(self.recipe, step=self.progress.step, recipe_changes=recipe_changes, data=data)
            self.save()  # with the new data's fingerprint: the next resume finds nothing changed
