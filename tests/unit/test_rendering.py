"""Prompts: one BOS, the chat template where there is one, limits, and warnings; with real tokenizers."""

import warnings
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from brorl.errors import DataError
from brorl.tasks.rendering import NoChatTemplateWarning, Rendering, render, render_all
from brorl.tasks.rows import TaskRow
from shared_data import cases

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
WITHOUT_BOS = TEMPLATE.removeprefix("{{ bos_token }}")
ROW = TaskRow(id="r", question="1 + 1 = {x}?", verifier="text", answer="2", meta={"level": 1})


def tokenizer(*, adds_bos: bool, template: str | None) -> Any:
    alphabet = sorted({chr(c) for c in range(32, 127)} | {"\n"})
    vocabulary = {"<s>": 0, "</s>": 1, **{c: i + 2 for i, c in enumerate(alphabet)}}
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    core.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    if adds_bos:
        core.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    made = PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", eos_token="</s>")
    made.chat_template = template
    return made


def rendered(row: TaskRow, made: Any, **options: Any) -> Any:
    prompt = render(row, made, Rendering(**options))
    assert prompt is not None
    return prompt


@pytest.mark.parametrize("template", [TEMPLATE, WITHOUT_BOS, None])
@pytest.mark.parametrize("adds_bos", [True, False])
def test_exactly_one_bos(adds_bos: bool, template: str | None) -> None:
    made = tokenizer(adds_bos=adds_bos, template=template)
    ids = rendered(ROW, made).token_ids.tolist()
    expected = 1 if adds_bos or template == TEMPLATE else 0
    assert ids.count(0) == expected
    assert ids[:1] == [0] * expected or expected == 0


def test_the_handed_cases_about_prompts() -> None:
    whys = {row["why"].split(".")[0]: row["expect"] for row in cases("rollout")}
    assert whys["Double BOS shifts the distribution silently"] == "exactly one BOS"
    doubled = tokenizer(adds_bos=True, template=TEMPLATE)
    assert rendered(ROW, doubled).token_ids.tolist().count(0) == 1
    with pytest.warns(NoChatTemplateWarning, match="plain text"):
        rendered(ROW, doubled, chat=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rendered(ROW, doubled)
        rendered(ROW, tokenizer(adds_bos=True, template=None), chat=False)


def test_template_system_and_prefix() -> None:
    made = tokenizer(adds_bos=False, template=WITHOUT_BOS)
    options = {"prompt_template": "Q: {question}!", "system": "Be short.", "assistant_prefix": " The answer is"}
    prompt = rendered(ROW, made, **options)
    assert prompt.text == "[system]Be short.[user]Q: 1 + 1 = {x}?![assistant] The answer is"
    assert made.decode(prompt.token_ids.tolist()).replace(" ", "") == prompt.text.replace(" ", "")
    assert (prompt.id, prompt.verifier, prompt.answer, prompt.meta) == ("r", "text", "2", {"level": 1})
    plain = rendered(ROW, tokenizer(adds_bos=False, template=None), **options)
    assert plain.text == "Be short.\n\nQ: 1 + 1 = {x}?! The answer is"


def test_messages() -> None:
    row = TaskRow(id="m", messages=({"role": "system", "content": "s"}, {"role": "user", "content": "u"}))
    prompt = rendered(row, tokenizer(adds_bos=True, template=TEMPLATE), system="unused", prompt_template="<{question}>")
    assert prompt.text == "<s>[system]s[user]<u>[assistant]"
    assert prompt.meta["messages"] == [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    with pytest.raises(DataError, match="row m: messages need a tokenizer with a chat template"):
        rendered(row, tokenizer(adds_bos=True, template=None))
    with pytest.raises(DataError, match="row m: messages need"):
        rendered(row, tokenizer(adds_bos=True, template=TEMPLATE), chat=False)


def test_overlong_prompts() -> None:
    made = tokenizer(adds_bos=True, template=None)
    rows = [TaskRow(id="short", question="hi"), TaskRow(id="long", question="hi" * 50)]
    with pytest.raises(DataError, match="row long: the prompt has 101 tokens, the limit is 20"):
        render_all(rows, made, Rendering(max_tokens=20))
    prompts, dropped = render_all(rows, made, Rendering(max_tokens=20, overlong="drop"))
    assert ([p.id for p in prompts], dropped) == (["short"], 1)
    with pytest.raises(DataError, match="all 2 prompts are longer than 1 tokens"):
        render_all(rows, made, Rendering(max_tokens=1, overlong="drop"))


def test_mistakes() -> None:
    made = tokenizer(adds_bos=True, template=None)
    with pytest.raises(DataError, match="would be lost"):
        rendered(ROW, made, prompt_template="What?")
    with pytest.raises(DataError, match="the prompt is empty"):
        rendered(TaskRow(id="e", question=""), made)
    with pytest.raises(DataError, match="chat: true needs a tokenizer with a chat template"):
        rendered(ROW, made, chat=True)
    broken = tokenizer(adds_bos=True, template="{{ raise_exception('no system role') }}")
    with pytest.raises(DataError, match="row r: the chat template fails: no system role"):
        rendered(ROW, broken)


def test_a_saved_tokenizer_renders_the_same(tmp_path: Path) -> None:
    made = tokenizer(adds_bos=True, template=TEMPLATE)
    made.save_pretrained(tmp_path)
    loaded = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    assert rendered(ROW, loaded).token_ids.tolist() == rendered(ROW, made).token_ids.tolist()
