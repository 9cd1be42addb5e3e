"""Checkpoints: a plain Hugging Face model directory with the trainer's state beside it.

    step_<s>/  config.json, model.safetensors, tokenizer files   as `from_pretrained` reads them, an adapter merged in
               adapter/                                          with LoRA: the adapter in peft's format, its optimizer
               optimizer.state                                   AdamW's state by parameter name
               reference.state                                   the reference policy, where it differs from the policy
               trainer.json                                      the learner's counters and whatever the trainer keeps
               manifest.json                                     size and checksum of every file, written last
    best       a link to the checkpoint of the best score, where the recipe keeps it; it is never pruned

A checkpoint is written under a hidden name, flushed to the disk, and renamed: a directory ``step_<s>`` is complete, or
was damaged later, which the manifest shows. The trainer's tensors are in safetensors format too, under another ending:
vLLM takes every ``*.safetensors`` of a directory for the model.
"""

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedTokenizerBase

from brorl.errors import RunError
from brorl.learner.learner import OPTIMIZER_FILE, Learner
from brorl.learner.lora import FOLDER, load_adapter_tensors, save_adapter

FORMAT = 3
BEST = "best"
_REFERENCE, _TRAINER, _MANIFEST = "reference.state", "trainer.json", "manifest.json"


def _write_nothing(_: Path) -> None:
    pass


def save_checkpoint(
    root: Path,
    step: int,
    learner: Learner,
    tokenizer: PreTrainedTokenizerBase,
    *,
    state: Mapping[str, Any],
    extra: Callable[[Path], object] = _write_nothing,
    keep: int | None = None,
) -> Path:
    """Write ``root/step_<step>`` whole or not at all, then drop all but the newest `keep` and the best.

    Args:
        root: directory of a run's checkpoints.
        step: steps done; the checkpoint's name.
        learner: policy, optimizer, reference policy and counters.
        tokenizer: saved beside the model, so that the directory can be used anywhere.
        state: the trainer's own, JSON values.
        extra: writes further files into the directory it is given.
        keep: how many checkpoints stay; None keeps all.

    Raises:
        RunError: the disk is full or cannot be written. Earlier checkpoints stay as they were.
    """
    final, partial = checkpoint_path(root, step), root / f".step_{step:06d}.partial"
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        _write(partial, step, learner, tokenizer, state)
        extra(partial)
        _seal(partial)
        _put_in_place(partial, final)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise RunError(
            f"{final}: the checkpoint could not be written ({error}). Make room on this disk, or lower "
            "checkpoint.keep, and resume; earlier checkpoints are untouched"
        ) from error
    prune(root, keep)
    return final


def prune(root: Path, keep: int | None) -> None:
    """Drop all checkpoints but the newest `keep` and the best; None drops none."""
    best = best_checkpoint(root)
    for old in _newest_first(root)[keep:] if keep is not None else []:
        if old != best:
            _discard(old)


def checkpoint_path(root: Path, step: int) -> Path:
    """Where the checkpoint of a step is, or would be."""
    return root / f"step_{step:06d}"


def drop_newer(root: Path, step: int) -> None:
    """Remove checkpoints after `step`, where a run goes on from there: they are damaged, and will be written again."""
    for directory in _newest_first(root):
        if _step_of(directory) > step:
            _discard(directory)
    best = best_checkpoint(root)
    if best is not None and not best.exists():
        (root / BEST).unlink()


def mark_best(root: Path, step: int) -> None:
    """Make ``root/best`` the checkpoint of a step, in one rename: there is always one best or the other."""
    partial = root / ".best.partial"
    partial.unlink(missing_ok=True)
    partial.symlink_to(f"step_{step:06d}")
    os.replace(partial, root / BEST)
    _flush(root)


def best_checkpoint(root: Path) -> Path | None:
    """The directory that ``root/best`` leads to."""
    link = root / BEST
    return root / link.readlink() if link.is_symlink() else None


def _write(
    directory: Path, step: int, learner: Learner, tokenizer: PreTrainedTokenizerBase, state: Mapping[str, Any]
) -> None:
    learner.model.save_pretrained(directory, state_dict=dict(learner.weights()) if learner.adapter else None)
    tokenizer.save_pretrained(directory)
    if learner.adapter:
        save_adapter(learner.adapter, directory / FOLDER)
    optimizer = learner.optimizer_tensors()
    if optimizer:
        save_file(optimizer, _trained(directory, learner) / OPTIMIZER_FILE)
    reference = _reference_tensors(learner)
    if reference:
        save_file(reference, directory / _REFERENCE)
    content = {"format": FORMAT, "step": step, "learner": learner.counters(), "state": state}
    (directory / _TRAINER).write_text(json.dumps(content, indent=1), encoding="utf-8")


def _trained(directory: Path, learner: Learner) -> Path:
    """Where what belongs to the trained parameters lies: beside an adapter, the merged model has none of it."""
    return directory / FOLDER if learner.adapter else directory


def _reference_tensors(learner: Learner) -> dict[str, Tensor]:
    """The reference policy's own parameters; empty without one, and where it equals the policy."""
    if learner.reference is None:
        return {}
    own = learner.trainable()
    reference = {name: p.detach() for name, p in learner.reference.named_parameters() if name in own}
    if all(torch.equal(own[name], tensor) for name, tensor in reference.items()):
        return {}
    return {name: tensor.contiguous() for name, tensor in reference.items()}


def _seal(directory: Path) -> None:
    """Write the manifest, and see every file onto the disk."""
    files = sorted(file for file in directory.rglob("*") if file.is_file())
    manifest = {
        str(file.relative_to(directory)): {"bytes": file.stat().st_size, "blake2b": _checksum(file)} for file in files
    }
    (directory / _MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    for path in [*files, directory / _MANIFEST, directory]:
        _flush(path)


def _put_in_place(partial: Path, final: Path) -> None:
    replaced = final.with_name(final.name + ".replaced")
    if final.exists():
        # Saved before at this step. The old one stays readable, under a name that `latest_checkpoint` knows.
        shutil.rmtree(replaced, ignore_errors=True)
        os.rename(final, replaced)
    os.rename(partial, final)
    _flush(final.parent)
    if replaced.exists():
        _discard(replaced)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _checksum(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _discard(directory: Path) -> None:
    hidden = directory.with_name(f".{directory.name}.discarded")
    shutil.rmtree(hidden, ignore_errors=True)
    os.rename(directory, hidden)
    shutil.rmtree(hidden)


def _step_of(directory: Path) -> int:
    number = directory.name.removeprefix("step_").removesuffix(".replaced")
    return int(number) if number.isdigit() else -1


def _newest_first(root: Path) -> list[Path]:
    found = [path for path in root.glob("step_*") if path.is_dir() and _step_of(path) >= 0]
    return sorted(found, key=lambda path: (-_step_of(path), path.name))


def damage(directory: Path) -> str | None:
    """What is wrong with a checkpoint: the first file that is missing or altered; None where it is sound."""
    try:
        manifest = json.loads((directory / _MANIFEST).read_text(encoding="utf-8"))
        for name, expected in manifest.items():
            file = directory / name
            if not file.is_file():
                return f"{name} is missing"
            if file.stat().st_size != expected["bytes"]:
                return f"{name} has {file.stat().st_size} bytes instead of {expected['bytes']}"
            if _checksum(file) != expected["blake2b"]:
                return f"{name} has changed since it was written"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"its manifest is unreadable ({error})"
    return None


def latest_checkpoint(root: Path) -> Path:
    """The newest sound checkpoint; warns of every damaged one it passes over.

    Raises:
        RunError: there is none.
    """
    found = _newest_first(root)
    for directory in found:
        problem = damage(directory)
        if problem is None:
            return directory
        warnings.warn(f"{directory}: damaged checkpoint passed over: {problem}", stacklevel=2)
    raise RunError(
        f"{root}: no sound checkpoint among {len(found)}; start a new run, from a copy of its model if you have one"
    )


def newest_size(root: Path) -> int:
    """Bytes of the newest checkpoint, 0 without one."""
    return sum(file.stat().st_size for path in _newest_first(root)[:1] for file in path.rglob("*") if file.is_file())


def load_checkpoint(directory: Path, learner: Learner) -> dict[str, Any]:
    """Bring a learner to where it was when `directory` was written; returns the trainer's state.

    Raises:
        RunError: damaged files, a newer format, or weights of another model.
    """
    problem = damage(directory)
    if problem is not None:
        raise RunError(f"{directory}: damaged checkpoint: {problem}; resume from an earlier one")
    content = json.loads((directory / _TRAINER).read_text(encoding="utf-8"))
    if content["format"] != FORMAT:
        raise RunError(f"{directory}: checkpoint format {content['format']}, and this version of brorl reads {FORMAT}")
    saved = AutoModelForCausalLM.from_pretrained(directory, dtype=learner.model.dtype, local_files_only=True)
    plain = {name: p.detach() for name, p in saved.named_parameters()}
    policy = load_adapter_tensors(directory / FOLDER) if learner.adapter else plain
    reference_file = directory / _REFERENCE
    reference = load_file(reference_file) if reference_file.exists() else policy
    _check_shapes(directory, learner, policy)
    _check_shapes(reference_file, learner, reference)
    _copy_into(learner.model, policy)
    if learner.adapter:
        _check_frozen(directory, learner, plain)
    if learner.reference is not None:
        _copy_into(learner.reference, reference)
    learner.clear_optimizer()
    if (_trained(directory, learner) / OPTIMIZER_FILE).exists():
        learner.load_optimizer(_trained(directory, learner))
    learner.set_counters(content["learner"])
    return content["state"]


def _check_shapes(source: Path, learner: Learner, tensors: Mapping[str, Tensor]) -> None:
    own = {name: tuple(p.shape) for name, p in learner.trainable().items()}
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    different = sorted(name for name in own.keys() | found.keys() if own.get(name) != found.get(name))
    if different:
        name = different[0]
        raise RunError(
            f"{source}: weights of another model: {name} is {found.get(name, 'missing')} there and "
            f"{own.get(name, 'missing')} in this run's model ({len(different)} differences)"
        )


@torch.no_grad()
def _copy_into(model: torch.nn.Module, tensors: Mapping[str, Tensor]) -> None:
    for name, parameter in model.named_parameters():
        if name in tensors:
            parameter.copy_(tensors[name])


def _check_frozen(directory: Path, learner: Learner, merged: Mapping[str, Tensor]) -> None:
    """The frozen weights are not in a checkpoint by themselves: with its adapter they must make its merged model."""
    now = learner.weights()
    for name, tensor in merged.items():
        if name not in now or not torch.allclose(now[name].to(tensor), tensor, rtol=1e-4, atol=1e-6):
            raise RunError(
                f"{directory}: the model that this run's adapter was trained on has changed since: with the adapter "
                f"{name} is not what it was. Put the model at model.path back as it was"
            )
