"""Instruction following: IFEval's 25 checks, strict and loose, on the text after the thinking block.

The prompt's meta holds ``instruction_id_list`` and ``kwargs`` (one dictionary an instruction), as IFEval and its
relatives publish them. ``reward`` in the meta chooses the reward: "share" of the instructions followed (the default:
ProRL's continuous reward) or "all" for all or nothing. ``mode`` chooses the verdict: "strict" (the default) or "loose".
"""

from collections.abc import Mapping
from typing import Any

from brorl.group import Outcome, Prompt
from brorl.verifiers.ifeval import CHECKS, BadInstruction
from brorl.verifiers.ifeval.language import load_model
from brorl.verifiers.score import Score

Verdict = bool | None


def verify_instruction(prompt: Prompt, response: str) -> Score:
    """Which of the prompt's instructions the response follows (IFEval, arXiv 2311.07911).

    Returns:
        CORRECT where all are followed, PARTIAL where some are and the reward is their share, else WRONG; NO_ANSWER for
        a blank response or a thinking block that never closes; UNSCORABLE where an instruction is unknown, lacks its
        arguments, or cannot be judged on this text, unless another one settles an all-or-nothing reward. `parts` holds
        the shares ``strict`` and ``loose`` and one entry per instruction, ``{index}:{id}``.
    """
    try:
        instructions = _instructions(prompt.meta)
        reward, mode = (_choice(prompt.meta, "reward", "share", "all"), _choice(prompt.meta, "mode", "strict", "loose"))
        answer = answer_text(response)
        strict = [follows_strict(answer, name, kwargs) for name, kwargs in instructions]
        loose = [follows_loose(answer, name, kwargs) for name, kwargs in instructions]
    except BadInstruction as problem:
        return Score(outcome=Outcome.UNSCORABLE, reward=float("nan"), note=str(problem))
    if not answer:
        return Score(outcome=Outcome.NO_ANSWER, reward=0.0, parts={"strict": 0.0, "loose": 0.0})
    parts = {"strict": _share(strict), "loose": _share(loose)}
    names = [name for name, _ in instructions]
    verdicts = strict if mode == "strict" else loose
    parts |= {f"{i}:{name}": _share([v]) for i, (name, v) in enumerate(zip(names, verdicts, strict=True))}
    missed = [name for name, verdict in zip(names, verdicts, strict=True) if verdict is False]
    undecided = [name for name, verdict in zip(names, verdicts, strict=True) if verdict is None]
    if undecided and not (reward == "all" and missed):
        note = f"cannot be judged on this text: {', '.join(undecided)}"
        return Score(outcome=Outcome.UNSCORABLE, reward=float("nan"), extracted=answer, parts=parts, note=note)
    share = _share(verdicts)
    value = share if reward == "share" else float(share == 1.0)
    outcome = Outcome.CORRECT if not missed else Outcome.PARTIAL if value > 0 else Outcome.WRONG
    note = f"not followed: {', '.join(missed)}" if missed else ""
    return Score(outcome=outcome, reward=value, extracted=answer, parts=parts, note=note)


def prepare(prompt: Prompt) -> None:
    """Load the language model, for instructions about language, before a worker's deadline starts."""
    names = prompt.meta.get("instruction_id_list")
    if isinstance(names, list) and any(str(name).startswith(("language:", "change_case:english")) for name in names):
        load_model()


def answer_text(response: str) -> str:
    """The response after its thinking block; empty where the block never closes, or where nothing but space is left."""
    _, closed, tail = response.rpartition("</think>")
    answer = tail.lstrip() if closed else response
    return "" if "<think>" in answer or not answer.strip() else answer


def follows_strict(text: str, instruction: str, kwargs: Mapping[str, Any]) -> Verdict:
    """Does the text follow the instruction as it stands? A blank text follows none.

    Raises:
        BadInstruction: an unknown id, or arguments that are missing or make no sense.
    """
    if instruction not in CHECKS:
        raise BadInstruction(f"unknown instruction {instruction!r}")
    verdict = CHECKS[instruction](text, {key: value for key, value in kwargs.items() if value is not None})
    return verdict if text.strip() else False


def follows_loose(text: str, instruction: str, kwargs: Mapping[str, Any]) -> Verdict:
    """Does the text, or one of IFEval's seven variants of it, follow the instruction? Never less than strict.

    The variants leave out the first line, the last, or both (a greeting, an outro), and the asterisks of markup.

    Raises:
        BadInstruction: as `follows_strict`.
    """
    lines = text.split("\n")
    trimmed = [text, *("\n".join(kept).strip() for kept in (lines[1:], lines[:-1], lines[1:-1]))]
    strict = follows_strict(text, instruction, kwargs)
    variants = [*trimmed[1:], *(variant.replace("*", "") for variant in trimmed)]
    if strict or any(follows_strict(variant, instruction, kwargs) for variant in variants):
        return True
    return strict


def _instructions(meta: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    names, kwargs = meta.get("instruction_id_list"), meta.get("kwargs")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise BadInstruction("the prompt's meta needs a non-empty 'instruction_id_list'")
    if kwargs is None:
        kwargs = [{}] * len(names)
    if not isinstance(kwargs, list) or len(kwargs) != len(names):
        raise BadInstruction(f"'kwargs' must be a list of {len(names)} dictionaries, one an instruction")
    if not all(isinstance(k, dict) or k is None for k in kwargs):
        raise BadInstruction("each entry of 'kwargs' must be a dictionary")
    return [(name, k or {}) for name, k in zip(names, kwargs, strict=True)]


def _choice(meta: Mapping[str, Any], key: str, default: str, other: str) -> str:
    """A setting of the meta. Only texts count: a data file may hold recorded rewards in a column of this name."""
    value = meta.get(key)
    if isinstance(value, str) and value not in (default, other):
        raise BadInstruction(f"meta[{key!r}] must be {default!r} or {other!r}, not {value!r}")
    return value if isinstance(value, str) else default


def _share(verdicts: list[Verdict]) -> float:
    return sum(verdict is True for verdict in verdicts) / len(verdicts)
