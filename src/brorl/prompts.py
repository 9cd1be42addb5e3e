"""The prompts of a recipe: the training stream, less what evaluation sets hold already, and the sets themselves."""

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from transformers import PreTrainedTokenizerBase

from brorl.collection import PromptAt
from brorl.config import FileTask, GymTask, Recipe
from brorl.errors import DataError, RecipeError
from brorl.evaluation.golds import accepted_rows
from brorl.group import Prompt
from brorl.metrics import TASK
from brorl.tasks.contamination import ContaminationReport, Overlap, OverlapIndex
from brorl.tasks.files import RowsSource, read_rows, split_rows
from brorl.tasks.mixture import PromptStream
from brorl.tasks.reasoning_gym import GymSource, Split
from brorl.tasks.rendering import Rendering, Tokenizer, render
from brorl.tasks.rows import Source, TaskRow, fingerprint
from brorl.verifiers.custom import resolve as resolve_verifier
from brorl.verifiers.pool import VerifierPool

_TRIED = 16
"""generated prompts per task that are compared with evaluation files at the start: not all may be taken"""


class ContaminationWarning(UserWarning):
    """Training prompts are left out, because an evaluation set holds them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """The prompts of a recipe."""

    prompt_at: PromptAt
    evaluation_sets: Mapping[str, Sequence[Prompt]]
    probe_prompts: Sequence[Prompt]
    span: int | None
    """stream positions that hold every prompt; None where the stream is endless"""
    contamination: ContaminationReport | None
    """None where the check is off"""
    fingerprint: Mapping[str, Any]
    """what a resumed run must find again, as `brorl.changes.data_changes` compares it"""


@dataclass(slots=True, kw_only=True)
class _File:
    """The rows of a file task; what its verifier refuses is left out when a side is first used."""

    task: FileTask
    sides: dict[Split, list[TaskRow]]
    accepted: set[Split]

    def rows(self, split: Split, pool: VerifierPool | None) -> list[TaskRow]:
        if pool is not None and split not in self.accepted and self.sides[split]:
            self.sides[split] = accepted_rows(pool, self.name(split), self.sides[split])
            self.accepted.add(split)
        return self.sides[split]

    def name(self, split: Split) -> str:
        path = self.task.heldout_path if split == "heldout" and self.task.heldout_path else self.task.path
        return f"{path}, {split} rows"


def open_data(recipe: Recipe, tokenizer: PreTrainedTokenizerBase, pool: VerifierPool | None = None) -> Data:
    """The training stream, the fixed evaluation sets (held-out prompts, and the first of the training prompts), and
    the probe's prompts: the first held-out ones.

    Raises:
        UserError: a task, file or row that cannot be used; training prompts that all overlap with evaluation prompts.
    """
    labels = task_labels(recipe.tasks)
    files = _read_files(recipe, labels)
    report, generated = _without_contamination(recipe, files)
    settings = recipe.prompt
    rendering = Rendering(
        chat=settings.chat,
        system=settings.system,
        prompt_template=settings.template,
        assistant_prefix=settings.assistant_prefix,
        max_tokens=settings.max_tokens,
        overlong=settings.overlong,
    )
    # Special-token ids are set at run time in transformers, so its type does not name them.
    as_tokenizer = cast(Tokenizer, tokenizer)

    def stream(split: Split) -> PromptStream:
        sources = [_source(at, task, split, recipe.seed, files, pool) for at, task in enumerate(recipe.tasks)]
        return PromptStream(sources, weights=[task.weight for task in recipe.tasks], seed=recipe.seed)

    def prompts(split: Split) -> tuple[PromptStream, PromptAt]:
        rows = stream(split)

        def at(position: int) -> Prompt | None:
            which, _ = rows.locate(position)
            row = rows.at(position)
            if generated is not None and split == "train" and which not in files and generated.find([row]):
                return None
            return render(replace(row, meta={**row.meta, TASK: labels[which]}), as_tokenizer, rendering)

        return rows, at

    training, prompt_at = prompts("train")
    if generated is not None:
        _check_generated(training, generated, [at for at in range(len(labels)) if at not in files])
    evaluation, probe, sets = recipe.evaluation, recipe.probe, {}
    probed = probe.every or probe.snr_every
    held_out = prompts("heldout")[1] if evaluation.heldout_prompts or probed else None
    if held_out and evaluation.heldout_prompts:
        sets["held-out"] = _first(held_out, evaluation.heldout_prompts)
    if evaluation.training_prompts:
        sets["training"] = _first(prompt_at, evaluation.training_prompts)
    return Data(
        prompt_at=prompt_at,
        evaluation_sets=sets,
        probe_prompts=_first(held_out, probe.prompts) if held_out and probed else [],
        span=training.span,
        contamination=report,
        fingerprint=_fingerprint(training, sets, generated),
    )


def task_labels(tasks: Sequence[GymTask | FileTask]) -> list[str]:
    """A name for each task in metrics: the Reasoning Gym task, or the file's name; equal ones are numbered."""
    names = [task.task if isinstance(task, GymTask) else task.path.stem.rstrip("-*") for task in tasks]
    counts, seen = Counter(names), Counter[str]()
    labels: list[str] = []
    for name in names:
        seen[name] += 1
        labels.append(f"{name}-{seen[name]}" if counts[name] > 1 else name)
    return labels


def _read_files(recipe: Recipe, labels: Sequence[str]) -> dict[int, _File]:
    files: dict[int, _File] = {}
    seen: set[str] = set()
    for at, task in enumerate(recipe.tasks):
        if isinstance(task, GymTask):
            continue
        if task.verifier:
            resolve_verifier(task.verifier)  # here, where a wrong name is one message, not an error per response
        rows = _rows(task, task.path)
        if {row.id for row in rows} & seen:  # two files of one name: prompts are known by their ids
            rows = [replace(row, id=f"{labels[at]}/{row.id}") for row in rows]
        seen |= {row.id for row in rows}
        held_out = _rows(task, task.heldout_path) if task.heldout_path else split_rows(rows, "heldout")
        training = rows if task.heldout_path else split_rows(rows, "train")
        files[at] = _File(task=task, sides={"train": training, "heldout": held_out}, accepted=set())
    return files


def _rows(task: FileTask, path: Path) -> list[TaskRow]:
    return read_rows(path, layout=task.layout, verifier=task.verifier, columns=task.columns, meta=task.meta)


def _without_contamination(
    recipe: Recipe, files: Mapping[int, _File]
) -> tuple[ContaminationReport | None, OverlapIndex | None]:
    """Take rows that overlap with evaluation prompts out of `files`; also what generated prompts are compared with."""
    ngram = recipe.contamination.ngram
    if ngram is None:
        return None, None
    own = {file.name("heldout"): file.sides["heldout"] for file in files.values()}
    others = {str(path): read_rows(path, needs_answer=False) for path in recipe.contamination.against}
    index = OverlapIndex({**own, **others}, ngram)
    overlaps: list[Overlap] = []
    checked = 0
    for file in files.values():
        training = file.sides["train"]
        found = index.find(training)
        if found and len(found) == len(training):
            raise DataError(
                f"{file.name('train')}: every one overlaps with an evaluation prompt, the first with "
                f"{found[0].matched_id} of {found[0].matched_set}: {found[0].shared[:100]!r}. Give another file, or "
                "change contamination.against"
            )
        out = {overlap.id for overlap in found}
        file.sides["train"] = [row for row in training if row.id not in out]
        overlaps += found
        checked += len(training)
    generated = len(files) < len(recipe.tasks) and bool(others)
    report = ContaminationReport(
        ngram=ngram,
        sets={name: len(rows) for name, rows in {**own, **others}.items()},
        checked=checked,
        overlaps=tuple(overlaps),
        generated=generated,
    )
    if overlaps:
        warnings.warn(report.text(), ContaminationWarning, stacklevel=3)
    return report, OverlapIndex(others, ngram) if generated else None


def _check_generated(training: PromptStream, index: OverlapIndex, which: Sequence[int]) -> None:
    """Refuse a generated task whose every prompt is in an evaluation file: its stream would never end."""
    for at in which:
        source = training.sources[at]
        tried = [source.row(i) for i in range(min(_TRIED, source.size or _TRIED))]
        found = [overlap for row in tried for overlap in index.find([row])]
        if len(found) == len(tried):
            raise DataError(
                f"{source.name}: each of the first {len(tried)} prompts overlaps with an evaluation prompt, the first "
                f"with {found[0].matched_id} of {found[0].matched_set}: {found[0].shared[:100]!r}. A longer "
                "contamination.ngram tells the common wording of a task from its content"
            )


def _source(
    at: int,
    task: GymTask | FileTask,
    split: Split,
    seed: int,
    files: Mapping[int, _File],
    pool: VerifierPool | None,
) -> Source:
    if isinstance(task, GymTask):
        size = task.size if split == "train" else None
        return GymSource(task.task, task.args, split=split, seed=seed, size=size, meta=task.meta)
    return RowsSource(files[at].name(split), files[at].rows(split, pool))


def _first(prompt_at: PromptAt, wanted: int) -> list[Prompt]:
    """The first `wanted` prompts that read differently; fewer where the tasks have no more."""
    found: dict[str, Prompt] = {}
    for position in range(20 * wanted):
        prompt = prompt_at(position)
        if prompt is not None:
            found.setdefault(prompt.text, prompt)
        if len(found) == wanted:
            break
    if len(found) < 2:
        raise RecipeError(
            f"only {len(found)} different prompts for a set of {wanted}, and scores need at least 2: "
            "give the task more data (for a file, heldout_path), or set evaluation.heldout_prompts, "
            "evaluation.training_prompts, probe.every and probe.snr_every to 0"
        )
    return list(found.values())


def _fingerprint(
    training: PromptStream, sets: Mapping[str, Sequence[Prompt]], generated: OverlapIndex | None
) -> dict[str, Any]:
    against = {"contamination.against": generated.fingerprint} if generated is not None else {}
    return {
        "sources": [{"name": s.name, "rows": s.size, "fingerprint": s.fingerprint} for s in training.sources],
        "order": training.fingerprint,
        "sets": {name: fingerprint([[p.text, p.answer] for p in prompts]) for name, prompts in sets.items()} | against,
    }
