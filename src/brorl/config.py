"""The recipe: everything that makes one run, as typed data.

`brorl.recipe_file` reads and writes it as YAML. Parts that are functions (advantage,
loss, KL, correction) are named, their keyword arguments beside the name: ``loss: {name: clipped, eps_high: 0.27}``;
the function's own signature is the schema, checked in `brorl.build`. This file loads no torch.
"""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)


class Settings(BaseModel):
    """Base of every section: immutable, and strict about keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)


class Ref(Settings):
    """A function by name with its keyword arguments; a bare string is a name without arguments."""

    model_config = ConfigDict(extra="allow", frozen=True)
    name: str

    @property
    def args(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


def _ref(value: object) -> object:
    return {"name": value} if isinstance(value, str) else value


Named = Annotated[Ref, BeforeValidator(_ref)]


class GymTask(Settings):
    """Prompts from one Reasoning Gym task."""

    kind: Literal["gym"]
    task: str
    args: dict[str, Any] = {}
    """the task's own configuration, such as ``{min_terms: 2, max_terms: 4}``"""
    weight: PositiveFloat = 1.0
    size: PositiveInt | None = None
    """distinct training prompts; none means an endless stream"""
    meta: dict[str, Any] = {}
    """for the verifier, such as ``{mode: partial}`` for the task's own partial credit"""


class FileTask(Settings):
    """Prompts from data on disk."""

    kind: Literal["file"]
    path: Path
    """a JSONL or Parquet file, a folder of them, a pattern; with the library `datasets` a saved or cached data set"""
    heldout_path: Path | None = None
    """a second file for evaluation; without it, held-out rows are split off `path` by content hash"""
    layout: str = "auto"
    """the data set's columns, a name in `brorl.tasks.layouts.LAYOUTS`; auto recognises them"""
    verifier: str | None = None
    """what grades the responses; none means what the layout says"""
    columns: dict[str, str] = {}
    """names of the columns that hold id, question, messages and answer, where they are not called so"""
    meta: dict[str, Any] = {}
    """for the verifier, added to every row's meta, such as ``{answer_format: whole}``"""
    weight: PositiveFloat = 1.0


Task = Annotated[GymTask | FileTask, Field(discriminator="kind")]


class LoraSettings(Settings):
    """A low-rank adapter instead of the whole model; it has no dropout, so that an unchanged policy has ratio 1."""

    rank: PositiveInt = 16
    alpha: PositiveInt = 32
    """the adapter is scaled by alpha / rank"""
    targets: Annotated[tuple[str, ...], Field(min_length=1)] | Literal["all-linear"] = "all-linear"
    """names of linear layers, such as [q_proj, v_proj]"""


class ContaminationSettings(Settings):
    """Training prompts that share text with an evaluation prompt are left out, and listed."""

    ngram: Annotated[int, Field(ge=2)] | None = 13
    """words in a row that a training prompt may not share with one; none turns the check off"""
    against: tuple[Path, ...] = ()
    """evaluation files, beside the recipe's own held-out rows"""

    @model_validator(mode="after")
    def _checked(self) -> "ContaminationSettings":
        if self.ngram is None and self.against:
            raise ValueError("against has no effect while ngram is none: drop one of them")
        return self


class ModelSettings(Settings):
    path: str = "brorl-tiny"
    """a Hugging Face model directory, or brorl-tiny, the bundled model"""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto is a GPU where there is one"""
    dtype: Literal["float32", "float64"] = "float32"
    """of the weights and the optimizer, whatever they are on disk"""
    compute: Literal["auto", "float32", "bfloat16"] = "auto"
    """of matrix products in learner and engine; auto is bfloat16 on a GPU that has it, else that of the weights"""
    gradient_checkpointing: bool = False
    """layers are computed again in the backward pass: less memory, more time"""
    lora: LoraSettings | None = None
    """train an adapter on the frozen model"""
    warm_optimizer: bool = True
    """start AdamW from the state stored beside the model, if there is one and the model itself is trained"""


class PromptSettings(Settings):
    template: str = "{question}"
    chat: bool | None = None
    """apply the tokenizer's chat template; none means: where it has one"""
    system: str = ""
    assistant_prefix: str = ""
    """text that opens the assistant's turn"""
    max_tokens: PositiveInt | None = None
    overlong: Literal["error", "drop"] = "error"


class RolloutSettings(Settings):
    per_prompt: PositiveInt = 512
    """N"""
    prompts_per_step: PositiveInt = 64
    """P"""
    max_new_tokens: PositiveInt = 64
    """the longest response, in tokens; a longer one is cut"""
    temperature: PositiveFloat = 1.0
    kv_budget_mib: Annotated[int, Field(ge=16)] = 1024
    """memory for keys and values in flight; it changes no result"""


class VerificationSettings(Settings):
    workers: PositiveInt = 2
    deadline_seconds: PositiveFloat = 5.0
    memory_mib: Annotated[int, Field(ge=128)] = 1024
    correct_threshold: float = 1.0
    """an unshaped reward at or above it counts as correct"""
    max_error_share: Annotated[float, Field(ge=0, le=1)] = 0.05
    """a step in which more rollouts than this could not be scored stops the run"""


class SelectionSettings(Settings):
    drop_constant: bool = True
    """dynamic sampling: groups that are all right or all wrong are not trained on"""
    max_rounds: PositiveInt = 4
    """sampling rounds per step until enough groups carry signal"""
    oversample: Annotated[float, Field(ge=1, le=2)] = 1.0
    """prompts drawn per round over groups missing; above 1 saves rounds and leaves surplus groups"""
    carry_surplus: bool = False
    """usable groups beyond P enter the next step; otherwise they are kept on disk only"""
    retire_after: PositiveInt | None = None
    """a prompt that came out all right this many times in a row is not drawn any more"""
    downsample: Annotated[int, Field(ge=2)] | None = None
    """rollouts per group that are trained on, those whose rewards vary most (PODS)"""
    allocation: Named = Ref(name="uniform")
    """uniform, N rollouts for every prompt; or sequential, in rounds that give hopeless and solved prompts up"""


class AlgorithmSettings(Settings):
    advantage: Named = Ref(name="reinforce_pp_baseline")
    """from the rewards of a group to the advantage of each response"""
    loss: Named = Ref(name="clipped")
    """the policy-gradient objective, with its clip range"""
    aggregation: Literal["token_mean", "sequence_mean", "prompt_mean", "constant"] = "token_mean"
    """how much each token weighs in a mini-batch"""
    correction: Named = Ref(name="icepop")
    """for the ratio of learner to engine probability, per token"""
    kl: Literal["k2", "k3"] = "k2"
    """the estimator of the KL term to the reference policy"""
    kl_weight: NonNegativeFloat = 1e-4
    """how strongly the reference policy holds the policy back; 0 does without one"""
    minibatches: PositiveInt = 4
    """optimizer steps per step, whatever N is"""
    truncated: Literal["zero", "mask"] = "zero"
    """a response cut at the length limit scores 0, or is left out of the update"""
    shaping: tuple[Named, ...] = ()
    """what a response earns beside being right, in this order; selection does not see it"""

    @model_validator(mode="after")
    def _shapings_agree(self) -> "AlgorithmSettings":
        names = [shaping.name for shaping in self.shaping]
        if len(set(names)) < len(names) or {"cosine", "overlong"} <= set(names):
            raise ValueError("shaping: one length reward at a time, and each shaping once")
        if "stop_properly" in names and (self.truncated == "mask" or "overlong" in names):
            raise ValueError(
                "shaping: stop_properly says what a truncated response scores; 'truncated: mask' and overlong do so too"
            )
        if names and self.advantage.name == "pass_at_k":
            raise ValueError("shaping has no effect with advantage pass_at_k, which counts successes")
        return self


class OptimizerSettings(Settings):
    lr: NonNegativeFloat = 1e-6
    """learning rate of AdamW, before the square-root rule of base_samples"""
    base_samples: PositiveInt | None = None
    """samples per step that `lr` was tuned for; lr is multiplied by sqrt(P N / base_samples), N after down-sampling"""
    schedule: Literal["constant", "cosine"] = "constant"
    """course of the learning rate after warm-up"""
    warmup_steps: NonNegativeInt = 0
    """steps over which the learning rate rises from 0"""
    weight_decay: NonNegativeFloat = 0.01
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    max_grad_norm: PositiveFloat = 1.0
    """gradients are scaled down to this norm"""
    max_nodes: Annotated[int, Field(ge=8)] = 256
    """trie nodes per row of the learner: memory, never the result, depends on it"""
    max_tokens: Annotated[int, Field(ge=8)] = 4096
    """of the rows that go through the model together, one row at least: memory, never the result"""


class ReferenceSettings(Settings):
    reset_every: PositiveInt | None = None
    """steps after which the reference policy becomes the current one"""
    reset_on_kl: PositiveFloat | None = None
    """it does so too after a step whose mean KL is above this"""
    reset_on_stall: PositiveInt | None = None
    """and after this many evaluations in a row without a better held-out pass@1"""
    clear_optimizer: bool = False
    """ProRL v1 clears the optimizer at a reset, v2 keeps it"""


class EvaluationSettings(Settings):
    every: NonNegativeInt = 0
    """steps between evaluations during the run; 0 means only before and after"""
    heldout_prompts: NonNegativeInt = 128
    training_prompts: NonNegativeInt = 128
    rollouts: PositiveInt = 128
    """per prompt; at least the largest k"""
    ks: Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = (1, 64)
    temperature: PositiveFloat = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0

    @model_validator(mode="after")
    def _enough_rollouts(self) -> "EvaluationSettings":
        if max(self.ks, default=1) > self.rollouts:
            raise ValueError(f"pass@{max(self.ks)} needs at least {max(self.ks)} rollouts, not {self.rollouts}")
        return self


class ProbeSettings(Settings):
    """What an update really did, measured on held-out prompts that are never trained on."""

    every: NonNegativeInt = 0
    """steps between measured updates, the first one included; 0 means never"""
    prompts: PositiveInt = 8
    rollouts: Annotated[int, Field(ge=16)] = 128
    """per prompt and measured update; the interval of a change needs at least 10 effective samples"""
    snr_every: NonNegativeInt = 0
    """steps between comparisons of gradients from disjoint sets of rollouts; 0 means never"""


class ReportSettings(Settings):
    every: NonNegativeInt = 0
    """steps between reports during the run; 0 means only at the end"""


class CheckpointSettings(Settings):
    every: PositiveInt = 1
    keep: PositiveInt = 2
    keep_best: bool = False
    """the checkpoint of the best held-out pass@1 stays too, as checkpoints/best"""


GUARD_THRESHOLDS: Mapping[str, float | None] = {
    "skipped_steps": 3,  # in a row: stop
    "exploding_gradient": 1000,  # times optimizer.max_grad_norm: skip the optimizer step
    "empty_steps": 3,  # in a row without a usable group: stop
    "entropy": 0.1,  # below this share of the first steps': warn
    "clipped": 0.3,  # share of the advantage: warn
    "truncated": 0.5,  # share of the rollouts: warn
    "duplicates": 2,  # fewer distinct responses per group: warn
    "mismatch": 0.05,  # nats per token between engine and learner: warn
    "disk": 2,  # fewer checkpoints than this fit: stop
}
"""What each guard looks at is in `brorl.guards`; none turns one off."""


def _all_guards(value: object) -> object:
    if not isinstance(value, Mapping):
        return value
    given = cast(Mapping[str, Any], value)
    for name in given:
        if name not in GUARD_THRESHOLDS:
            near = difflib.get_close_matches(str(name), GUARD_THRESHOLDS, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(GUARD_THRESHOLDS)}"
            raise ValueError(f"no guard {name!r}; {hint}")
    return {**GUARD_THRESHOLDS, **given}


Guards = Annotated[dict[str, NonNegativeFloat | None], BeforeValidator(_all_guards)]


class Recipe(Settings):
    """One run."""

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]+$")
    seed: int = 0
    steps: PositiveInt
    model: ModelSettings = ModelSettings()
    prompt: PromptSettings = PromptSettings()
    tasks: tuple[Task, ...]
    contamination: ContaminationSettings = ContaminationSettings()
    rollouts: RolloutSettings = RolloutSettings()
    verification: VerificationSettings = VerificationSettings()
    selection: SelectionSettings = SelectionSettings()
    algorithm: AlgorithmSettings = AlgorithmSettings()
    optimizer: OptimizerSettings = OptimizerSettings()
    reference: ReferenceSettings = ReferenceSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    probe: ProbeSettings = ProbeSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    report: ReportSettings = ReportSettings()
    guards: Guards = dict(GUARD_THRESHOLDS)
    trackers: tuple[Literal["tensorboard", "wandb"], ...] = ()
    """where figures go beside metrics.jsonl"""

    @property
    def samples_per_step(self) -> int:
        return self.rollouts.per_prompt * self.rollouts.prompts_per_step

    @property
    def trained_samples_per_step(self) -> int:
        """P times the rollouts of a group that are trained on; what the learning rate goes by."""
        return (self.selection.downsample or self.rollouts.per_prompt) * self.rollouts.prompts_per_step

    @model_validator(mode="after")
    def _makes_sense(self) -> "Recipe":
        if not self.tasks:
            raise ValueError("tasks: name at least one, such as {kind: gym, task: chain_sum}")
        if self.rollouts.per_prompt < 2:
            raise ValueError("rollouts.per_prompt = 1 leaves a group baseline nothing to compare with: use 2 or more")
        self._resets_make_sense()
        if not self.selection.drop_constant and self.selection.allocation.name != "uniform":
            raise ValueError(
                "selection.allocation gives up groups without signal, which drop_constant: false trains on"
            )
        if self.algorithm.minibatches > self.rollouts.prompts_per_step:
            raise ValueError(
                f"algorithm.minibatches = {self.algorithm.minibatches} needs at least as many prompts per step, "
                f"not {self.rollouts.prompts_per_step}"
            )
        return self

    @model_validator(mode="after")
    def _has_effect(self) -> "Recipe":
        selection, evaluation = self.selection, self.evaluation
        endless = [t.task for t in self.tasks if isinstance(t, GymTask) and t.size is None]
        all_trained = "while selection.drop_constant is false"
        idle = (
            (self.model.dtype == "float64" and self.model.compute != "auto")
            and "model.compute has no effect while model.dtype is float64",
            (self.prompt.overlong != "error" and self.prompt.max_tokens is None)
            and "prompt.overlong has no effect without prompt.max_tokens",
            (self.algorithm.kl != "k2" and self.algorithm.kl_weight == 0)
            and "algorithm.kl has no effect while algorithm.kl_weight is 0",
            (not selection.drop_constant and (selection.carry_surplus or selection.oversample > 1))
            and f"selection.carry_surplus and oversample have no effect {all_trained}",
            (not selection.drop_constant and selection.max_rounds != SelectionSettings().max_rounds)
            and f"selection.max_rounds has no effect {all_trained}",
            (selection.carry_surplus and selection.oversample == 1)
            and "selection.carry_surplus has no effect while oversample is 1, where no surplus arises",
            ((selection.downsample or 0) >= self.rollouts.per_prompt)
            and "selection.downsample has no effect from rollouts.per_prompt up",
            (selection.retire_after is not None and bool(endless))
            and f"selection.retire_after has no effect on {endless[:1]}, which never repeats a prompt (give it a size)",
            (evaluation.every > 0 and not evaluation.heldout_prompts and not evaluation.training_prompts)
            and "evaluation.every has no effect without heldout_prompts and training_prompts",
        )
        if found := [message for message in idle if message]:
            raise ValueError(f"{'; '.join(found)}: drop one or the other")
        return self

    @model_validator(mode="after")
    def _keeping_makes_sense(self) -> "Recipe":
        evaluation = self.evaluation
        if self.checkpoint.keep_best and not (evaluation.every and evaluation.heldout_prompts and 1 in evaluation.ks):
            raise ValueError(
                "checkpoint.keep_best goes by held-out pass@1: set evaluation.every, heldout_prompts, and 1 in ks"
            )
        if len(set(self.trackers)) < len(self.trackers):
            raise ValueError("trackers: each once")
        return self

    def _resets_make_sense(self) -> None:
        reference, evaluation = self.reference, self.evaluation
        names = [n for n in ("reset_every", "reset_on_kl", "reset_on_stall") if getattr(reference, n) is not None]
        if names and self.algorithm.kl_weight == 0:
            raise ValueError(f"reference.{names[0]} has no effect while algorithm.kl_weight is 0: drop one of them")
        if reference.clear_optimizer and not names:
            raise ValueError("reference.clear_optimizer has no effect without a reset: set reference.reset_every, say")
        if reference.reset_on_stall and not (evaluation.every and evaluation.heldout_prompts and 1 in evaluation.ks):
            raise ValueError(
                "reference.reset_on_stall watches held-out pass@1: set evaluation.every, heldout_prompts, and 1 in ks"
            )
