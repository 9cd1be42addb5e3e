"""IFEval's checks: the handed cases, the rules they stand for, and texts made to break a grader."""
# ruff: noqa: E501, RUF001 - one case a line; signs of many scripts are meant

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brorl.group import Outcome, Prompt
from brorl.verifiers.ifeval import CHECKS, BadInstruction
from brorl.verifiers.ifeval.units import occurrences, sentences, words
from brorl.verifiers.instruction import answer_text, follows_loose, follows_strict, verify_instruction
from shared_data import cases, shared_rows

FOLLOWS = {"follows": True, "violates": False}


def verify(response: str, ids: list[str], kwargs: list[dict] | None = None, **meta: object):
    return verify_instruction(
        Prompt(id="p", text="", meta={"instruction_id_list": ids, "kwargs": kwargs, **meta}), response
    )


def test_every_handed_case():
    rows = cases("ifeval")
    assert len(rows) == 33
    for row in rows:
        gold, expect, text = dict(row["gold"]), row["expect"], row["input"]
        name = gold.pop("id", None)
        if expect in ("unscorable", "loose >= strict"):
            ids = [name] if name else gold["instruction_id_list"]
            arguments = [{k: v for k, v in gold.items() if k not in ("kwargs", "instruction_id_list")}] * len(ids)
            assert verify(text, ids, arguments).outcome == Outcome.UNSCORABLE, row
        else:
            strict, loose = (expect["strict"], expect["loose"]) if isinstance(expect, dict) else (expect, None)
            assert follows_strict(text, name, gold) is FOLLOWS[strict], row
            if loose is not None:
                assert follows_loose(text, name, gold) is FOLLOWS[loose], row


def test_knows_the_25_of_ifeval():
    ids = {name for row in shared_rows("data/ifeval.jsonl") for name in row["instruction_id_list"]}
    assert len(ids) == 25
    assert ids <= set(CHECKS)


def test_arguments_of_ifeval_are_understood():
    for row in shared_rows("data/ifeval.jsonl"):
        for name, kwargs in zip(row["instruction_id_list"], row["kwargs"], strict=True):
            follows_strict("A text.", name, kwargs)  # raises BadInstruction otherwise


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It's a well-known fact.", ["It's", "a", "well-known", "fact"]),
        ("$3.50 at 5 p.m. or 10:30, e.g. 1,000", ["3.50", "at", "5", "p.m.", "or", "10:30", "e.g.", "1,000"]),
        ("one—two; three/four...five", ["one", "two", "three", "four", "five"]),
        ("नमस्ते दुनिया", ["नमस्ते", "दुनिया"]),
        ("*** --- 👍 ___", []),
    ],
)
def test_words(text: str, expected: list[str]):
    assert words(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Dr. Lee paid $3.50. He left at 5 p.m. on Monday.", 2),
        ("He left at 5 p.m. The train was late.", 2),
        ("J. R. Smith lives in the U.S. with a cat.", 1),
        ("Steps:\n\n1. Cut it.\n2. Glue it.", 2),
        ('"Really?" she asked. "Yes!"', 2),
        ("Well... that is it. Wait... What?", 3),
        ("how are you? i am fine. ok.", 3),
        ("No end here", 1),
        ("これは文です。もう一つ。", 2),
        ("यह है। वह है।", 2),
        ("See example.com or v1.2.3 for more.", 1),
        ("***\n\n...", 0),
        ("What?! Never!!! Ok.", 3),
        ('Visit "Curls & Co." today (or soon.) and enjoy.', 1),
    ],
)
def test_sentences(text: str, expected: int):
    assert len(sentences(text)) == expected


@pytest.mark.parametrize(
    ("phrase", "text", "expected"),
    [
        ("ant", "An elephant wants plants.", 0),
        ("art", "Art, art; _art_ (art) start", 4),
        ("C++", "C++ and C, not C", 1),
        ("C", "C++ and C#", 2),
        ("a.b", "axb a.b", 1),
        ("it's", "It’s here", 1),
        ("new  york", "New\nYork", 1),
        ("café", "cafe\u0301 CAFÉ", 2),
    ],
)
def test_occurrences(phrase: str, text: str, expected: int):
    assert occurrences(phrase, text) == expected


@pytest.mark.parametrize(
    ("name", "kwargs", "text", "expected"),
    [
        ("language:response_language", {"language": "de"}, "Die Katze sitzt auf der Matte.", True),
        ("language:response_language", {"language": "de"}, "The cat sat on the mat.", False),
        ("language:response_language", {"language": "fr"}, "Hallo", False),
        ("language:response_language", {"language": "fr"}, "Bonjour", True),
        ("language:response_language", {"language": "kn"}, "ನಮಸ್ಕಾರ", True),
        ("language:response_language", {"language": "kn"}, "Namaskara", False),
        ("language:response_language", {"language": "de"}, "12345", False),
        ("language:response_language", {"language": "de"}, "Xqzt", None),
        ("language:response_language", {"language": "pt-br"}, "Eu gosto muito de você e da sua casa.", True),
        ("change_case:english_lowercase", {}, "das ist nicht sehr schön und ich gehe nach hause", False),
        ("change_case:english_capital", {}, "ПРИВЕТ", False),
        ("change_case:english_capital", {}, "ABC, def", False),
        ("change_case:english_capital", {}, "123", False),
        ("detectable_format:json_format", {}, '"just a text"', False),
        ("detectable_format:json_format", {}, '{"a": NaN}', False),
        ("detectable_format:json_format", {}, 'Here: {"a": 1}', False),
        ("detectable_format:json_format", {}, '```\n[{"a": 1}]\n```', True),
        ("detectable_format:title", {}, "<<Poem of Joy>>\nText", True),
        ("detectable_format:title", {}, "<< Poem of Joy >>\nText", True),
        ("detectable_format:title", {}, "x << y >> z", False),
        ("detectable_format:title", {}, "<<<three>>>", False),
        ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* a\n\n***\n\n* b\n- - -", True),
        ("detectable_format:number_bullet_lists", {"num_bullets": 1}, "**bold**\n* a", True),
        ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*a b* and **c** and * d *", True),
        ("detectable_format:number_highlighted_sections", {"num_highlights": 1}, "* item\n* item", False),
        ("detectable_format:multiple_sections", {"section_spliter": "SECTION", "num_sections": 2}, "SECTION 1\na", False),
        ("detectable_format:multiple_sections", {"section_spliter": "Section", "num_sections": 2}, "Section X\nSection X", False),
        ("detectable_format:constrained_response", {}, "My answer is yes.", True),
        ("detectable_format:constrained_response", {}, "My answer is yes. My answer is no.", False),
        ("detectable_content:number_placeholders", {"num_placeholders": 1}, "- [ ] todo [](a)", False),
        ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[name] and [street address]", True),
        ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye.\n\nP.S. I love you", True),
        ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye.\n\nP.P.S. I love you", False),
        ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "Bye.\n\nP.P.S. I love you", True),
        ("detectable_content:postscript", {"postscript_marker": "P.S."}, "He said UPS", False),
        ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "a\n\n***\n\nb", True),
        ("length_constraints:number_paragraphs", {"num_paragraphs": 1}, "a ***very*** b", True),
        ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "a\n******\nb", False),
        ("length_constraints:nth_paragraph_first_word", {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "elm"}, "a\n\n\n\n**Elm:** b", True),
        ("length_constraints:nth_paragraph_first_word", {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "elm"}, "a\n\nelms b", False),
        ("combination:two_responses", {}, "A\n******\nB", True),
        ("combination:two_responses", {}, "******\nA\n******\nB\n******", True),
        ("combination:two_responses", {}, "A\n******\nB\n******\nC", False),
        ("combination:repeat_prompt", {"prompt_to_repeat": "Say hi."}, "say  hi. Hi", True),
        ("startend:end_checker", {"end_phrase": "Any other questions?"}, '"Bye. Any other questions?"', True),
        ("startend:quotation", {}, '"a"', True),
        ("startend:quotation", {}, '"a', False),
        ("startend:quotation", {}, '""', False),
        ("change_case:capital_word_frequency", {"capital_relation": "at least", "capital_frequency": 3}, "I AM COVID-19 I'm", True),
        ("change_case:capital_word_frequency", {"capital_relation": "less than", "capital_frequency": 2}, "I'm I'd OK", True),
        ("punctuation:no_comma", {}, "一、二", False),
        ("punctuation:no_comma", {}, "a; b", True),
        ("choice", {"options": ["yes", "no"]}, " *Yes.* ", True),
        ("words:words_position", {"keyword": "fox"}, "the fox ran to a fox, yes", True),
        ("count:word_count_range", {"min_words": 2, "max_words": 3}, "one two three", True),
    ],
)  # fmt: skip
def test_checks(name: str, kwargs: dict, text: str, expected: bool | None):
    assert follows_strict(text, name, kwargs) is expected


SENTENCES = {
    "ar": "ذهبت اليوم إلى السوق واشتريت بعض التفاح.", "bg": "Днес отидох на пазара и купих няколко ябълки.",
    "de": "Heute ging ich auf den Markt und kaufte ein paar Äpfel.", "en": "Today I went to the market and bought apples.",
    "es": "Hoy fui al mercado y compré algunas manzanas.", "fa": "من امروز به بازار رفتم و چند سیب خریدم.",
    "fi": "Tänään kävin torilla ja ostin muutaman omenan.", "fr": "Je suis allé au marché et j'ai acheté des pommes.",
    "he": "היום הלכתי לשוק וקניתי כמה תפוחים.", "hi": "आज मैं बाज़ार गया और कुछ सेब खरीदे।",
    "it": "Oggi sono andato al mercato e ho comprato alcune mele.", "ja": "今日は市場に行ってりんごをいくつか買いました。",
    "ko": "오늘 나는 시장에 가서 사과를 몇 개 샀다.", "mr": "आज मी बाजारात गेलो आणि काही सफरचंदे विकत घेतली.",
    "ne": "आज म बजार गएँ र केही स्याउ किनें।", "pl": "Dzisiaj poszedłem na targ i kupiłem kilka jabłek.",
    "pt": "Hoje fui ao mercado e comprei algumas maçãs.", "ru": "Сегодня я пошёл на рынок и купил несколько яблок.",
    "sw": "Leo nilienda sokoni na kununua maapulo machache.", "th": "วันนี้ฉันไปตลาดและซื้อแอปเปิ้ล",
    "uk": "Сьогодні я пішов на ринок і купив кілька яблук.", "ur": "میں آج بازار گیا اور کچھ سیب خریدے۔",
    "vi": "Hôm nay tôi đi chợ và mua vài quả táo.", "zh": "今天我去市场买了几个苹果。",
}  # fmt: skip


def test_one_sentence_tells_its_language_from_the_others():
    for spoken, text in SENTENCES.items():
        for asked in SENTENCES:
            followed = follows_strict(text, "language:response_language", {"language": asked})
            assert followed is (spoken == asked), (spoken, asked)


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        ("keywords:existence", {}),
        ("keywords:existence", {"keywords": []}),
        ("keywords:frequency", {"keyword": "a", "frequency": 2, "relation": "about"}),
        ("length_constraints:number_words", {"num_words": 2.5, "relation": "at least"}),
        ("keywords:letter_frequency", {"letter": "ab", "let_frequency": 1, "let_relation": "at least"}),
        ("length_constraints:nth_paragraph_first_word", {"num_paragraphs": 1, "nth_paragraph": 2, "first_word": "a"}),
        ("language:response_language", {"language": "klingon"}),
        ("no:such_check", {}),
    ],
)
def test_bad_arguments_are_unscorable_whatever_the_text(name: str, kwargs: dict):
    for text in ("", "any text"):
        with pytest.raises(BadInstruction):
            follows_strict(text, name, kwargs)
        assert verify(text, [name], [kwargs]).outcome == Outcome.UNSCORABLE


def test_share_and_all_or_nothing():
    ids, kwargs = ["punctuation:no_comma", "startend:quotation"], [{}, {}]
    share = verify("no comma", ids, kwargs)
    assert (share.outcome, share.reward) == (Outcome.PARTIAL, 0.5)
    assert share.parts["0:punctuation:no_comma"] == 1.0
    assert share.parts["1:startend:quotation"] == 0.0
    nothing = verify("no comma", ids, kwargs, reward="all")
    assert (nothing.outcome, nothing.reward) == (Outcome.WRONG, 0.0)
    assert verify('"no comma"', ids, kwargs, reward="all").reward == 1.0
    assert verify("no comma", ids, kwargs, reward="half").outcome == Outcome.UNSCORABLE
    assert verify("no comma", ids, kwargs, reward=1.0).outcome == Outcome.PARTIAL  # a recorded reward, not a setting


def test_only_the_text_after_the_thinking_block_counts():
    ids = ["punctuation:no_comma"]
    assert verify("<think>a, b, c</think>\nfine", ids).outcome == Outcome.CORRECT
    assert verify("<think>fine", ids).outcome == Outcome.NO_ANSWER
    assert verify("<think>a</think>b<think>c", ids).outcome == Outcome.NO_ANSWER
    assert verify("<think>fine</think>  \n", ids).outcome == Outcome.NO_ANSWER
    assert verify("", ids).reward == 0.0
    assert answer_text("a</think>b</think>\n c") == "c"


def test_what_cannot_be_told_is_unscorable_unless_another_instruction_settles_it():
    ids, kwargs = ["language:response_language", "startend:quotation"], [{"language": "de"}, {}]
    assert math.isnan(verify("Xqzt", ids, kwargs).reward)
    assert verify("Xqzt", ids, kwargs, reward="all").outcome == Outcome.WRONG
    assert verify('"Xqzt"', ids, kwargs, reward="all").outcome == Outcome.UNSCORABLE


def test_loose_mode_takes_off_a_greeting_and_stars():
    response = "Sure! Here it is:\n**my answer**"
    assert verify(response, ["change_case:english_lowercase"]).outcome == Outcome.WRONG
    assert verify(response, ["change_case:english_lowercase"], mode="loose").outcome == Outcome.CORRECT


HOSTILE = [
    "[" * 60000,
    "[a" * 40000,
    "<<a" * 40000,
    "*" * 60001,
    "*a *" * 30000,
    "```" + "\n" * 60000,
    "[" * 100000 + "]" * 100000,
    ". " * 40000,
    "a.m. " * 20000,
    "a-" * 40000,
    " " * 60000 + "x",
    "- " * 40000,
    "P. " * 30000,
    "Section " * 15000,
    "\u0301" * 40000,
    "\ud800 lone surrogate",
    "1" * 5000,
]


@pytest.mark.parametrize("index", range(len(HOSTILE)))
def test_hostile_texts_raise_nothing_and_end_soon(index: int):
    arguments = {}
    for row in shared_rows("data/ifeval.jsonl"):
        arguments |= dict(zip(row["instruction_id_list"], row["kwargs"], strict=True))
    started = time.perf_counter()
    for name, kwargs in arguments.items():
        follows_loose(HOSTILE[index], name, kwargs)
    assert time.perf_counter() - started < 20, "a check takes more than linear time"


@given(
    text=st.text(alphabet=st.sampled_from("aA.,!* \n-[]<>\"'1éß、#")),
    name=st.sampled_from(sorted(set(CHECKS) - {"language:response_language"})),
)
def test_loose_is_never_less_than_strict(text: str, name: str):
    kwargs = {
        "keywords": ["a"], "keyword": "a", "frequency": 1, "relation": "less than", "forbidden_words": ["A"],
        "letter": "a", "let_frequency": 2, "let_relation": "at least", "num_sentences": 2, "num_words": 2,
        "num_paragraphs": 2, "nth_paragraph": 1, "first_word": "a", "capital_frequency": 1,
        "capital_relation": "at least", "num_placeholders": 1, "postscript_marker": "P.S.", "num_bullets": 1,
        "num_highlights": 1, "section_spliter": "a", "num_sections": 1, "prompt_to_repeat": "a", "end_phrase": "a",
        "options": ["a"], "names": ["a"], "n": 1, "min_words": 1, "max_words": 2, "letters": "a", "word": "a",
        "positions": [1],
    }  # fmt: skip
    strict, loose = follows_strict(text, name, kwargs), follows_loose(text, name, kwargs)
    assert loose or not strict
    if not text.strip():
        assert not strict
        assert not loose
