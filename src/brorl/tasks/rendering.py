"""From a row to a prompt: template, tokens, exactly one BOS, and a limit on the length."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np

from brorl.errors import DataError
from brorl.group import Prompt
from brorl.tasks.rows import TaskRow


class Tokenizer(Protocol):
    """What is asked of a tokenizer; those of transformers comply."""

    chat_template: Any
    bos_token_id: int | None

    def apply_chat_template(
        self, conversation: Any, /, *, tokenize: bool = ..., add_generation_prompt: bool = ..., **kwargs: Any
    ) -> Any:
        """The conversation as text."""
        ...

    def encode(self, text: str, /, *, add_special_tokens: bool = ...) -> list[int]:
        """Token ids."""
        ...


class NoChatTemplateWarning(UserWarning):
    """A chat-tuned model gets a plain prompt: its answers may never end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """How rows become prompts."""

    chat: bool | None = None
    """apply the tokenizer's chat template; None: where there is one"""
    system: str = ""
    """a system message before the question; with a plain prompt it is put in front of the text"""
    prompt_template: str = "{question}"
    """the question's surroundings, such as ``"{question}\\nAnswer in <answer> tags."``"""
    assistant_prefix: str = ""
    """opens the answer, such as ``"The answer is"``; part of the prompt, not of the response"""
    max_tokens: int | None = None
    """longest prompt, in tokens"""
    overlong: Literal["error", "drop"] = "error"
    """what happens to a longer one"""


def render(row: TaskRow, tokenizer: Tokenizer, rendering: Rendering) -> Prompt | None:
    """The prompt of one row, or None where it is longer than `max_tokens` and `overlong` is ``drop``.

    Raises:
        DataError: an overlong prompt, an empty one, messages without a chat template, or a template that fails.
    """
    text, is_chat = _text(row, tokenizer, rendering)
    ids = _one_bos(tokenizer.encode(text, add_special_tokens=False), tokenizer, text)
    if not ids:
        raise DataError(f"row {row.id}: the prompt is empty: give it a question, or check prompt_template")
    if rendering.max_tokens is not None and len(ids) > rendering.max_tokens:
        if rendering.overlong == "drop":
            return None
        raise DataError(
            f"row {row.id}: the prompt has {len(ids)} tokens, the limit is {rendering.max_tokens}: raise the limit, "
            "shorten the prompt, or set overlong: drop"
        )
    if not is_chat and tokenizer.chat_template:
        warnings.warn(
            "the tokenizer has a chat template but the prompt is plain text: a chat-tuned model may never end its "
            "answer; leave chat unset unless this is meant",
            NoChatTemplateWarning,
            stacklevel=2,
        )
    meta = {**row.meta, "messages": [dict(m) for m in row.messages]} if row.messages else row.meta
    return Prompt(
        id=row.id, text=text, token_ids=np.array(ids, np.int32), verifier=row.verifier, answer=row.answer, meta=meta
    )


def render_all(rows: Iterable[TaskRow], tokenizer: Tokenizer, rendering: Rendering) -> tuple[list[Prompt], int]:
    """The prompts of many rows, and how many overlong ones were dropped.

    Raises:
        DataError: as `render`; also where every row was dropped.
    """
    rendered = [render(row, tokenizer, rendering) for row in rows]
    prompts = [prompt for prompt in rendered if prompt is not None]
    if rendered and not prompts:
        raise DataError(f"all {len(rendered)} prompts are longer than {rendering.max_tokens} tokens: raise the limit")
    return prompts, len(rendered) - len(prompts)


def with_template(row: TaskRow, template: str) -> TaskRow:
    """The row with its question put into a template; the question may hold braces of its own.

    Raises:
        DataError: the template lacks ``{question}``.
    """
    if "{question}" not in template:
        raise DataError(f"prompt_template {template!r} has no {{question}} in it: the question would be lost")
    if row.messages:
        *before, last = row.messages
        filled = {**last, "content": template.replace("{question}", last["content"])}
        return replace(row, messages=(*before, filled))
    return replace(row, question=template.replace("{question}", row.question))


def _text(row: TaskRow, tokenizer: Tokenizer, rendering: Rendering) -> tuple[str, bool]:
    row = with_template(row, rendering.prompt_template)
    if rendering.chat is False or not tokenizer.chat_template:
        if row.messages or rendering.chat:
            raise DataError(
                f"row {row.id}: {'messages need' if row.messages else 'chat: true needs'} a tokenizer with a chat "
                "template, and this one has none or chat is false: use a chat-tuned model, or plain questions"
            )
        system = f"{rendering.system}\n\n" if rendering.system else ""
        return system + row.question + rendering.assistant_prefix, False
    messages: Sequence[Mapping[str, str]] = row.messages or ({"role": "user", "content": row.question},)
    if rendering.system and messages[0]["role"] != "system":
        messages = ({"role": "system", "content": rendering.system}, *messages)
    try:
        text = tokenizer.apply_chat_template([dict(m) for m in messages], tokenize=False, add_generation_prompt=True)
    except Exception as error:  # templates are programs of their own and raise what they like
        raise DataError(f"row {row.id}: the chat template fails: {error}") from error
    return str(text) + rendering.assistant_prefix, True


def _one_bos(ids: list[int], tokenizer: Tokenizer, text: str) -> list[int]:
    """One BOS where the tokenizer or the template puts one, never two."""
    bos = tokenizer.bos_token_id
    if bos is None or not text:
        return ids
    body = 0
    while body < len(ids) and ids[body] == bos:
        body += 1
    wanted = body > 0 or tokenizer.encode(text[:1], add_special_tokens=True)[:1] == [bos]
    return [bos] * wanted + ids[body:]
