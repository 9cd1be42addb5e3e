"""The benchmarks: small versioned definitions of data layout, prompt, verifier and sampling. None ships its data.

A score means something only beside the definition it was made with: `version` goes up when a prompt, a layout or a
verifier setting changes what a benchmark measures, and evaluations of different versions are not compared.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from brorl.errors import DataError
from brorl.evaluation import benchmark_layouts as layouts
from brorl.evaluation.benchmark_layouts import Layout

Generated = Literal["reasoning_gym", "knights_and_knaves"]

BOXED = "{question}\n\nPlease reason step by step, and put your final answer within \\boxed{}."
LETTER = "{question}\n\nThink it through, and put the letter of the right option within \\boxed{}."
COMPLETE = "Complete this Python function. Give the whole function in one ```python code block.\n\n{question}"
WRITE = "{question}\n\nGive the whole solution in one ```python code block."
PROGRAM = (
    "{question}\n\nWrite a Python program that reads from standard input and writes to standard output, or the "
    "function that is asked for. Give it in one ```python code block."
)
TAGGED = "{question}\n\nThink it through, and give the final answer, and nothing else, in <answer></answer> tags."
ROLES = (
    "{question}\n\nThink it through, and give the answer in <answer></answer> tags, one line a person, such as:\n"
    "<answer>\nZoey is a knight\nOliver is a knave\n</answer>"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """One benchmark, in everything but its data."""

    title: str
    version: int = 1
    layout: Layout | None
    """None: the problems are generated"""
    generated: Generated | None = None
    """what makes the problems where no file is given"""
    columns: str
    """the columns that its rows need, for people"""
    files: tuple[str, ...] = ()
    """stems of the names that its file may have in a folder of benchmarks, beside the benchmark's own"""
    hub: tuple[str, str | None, str] | None = None
    """(data set, configuration, split) for `datasets`, from its cache"""
    template: str
    verifier: str
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    unjudged: frozenset[str] = frozenset()
    """ids of rows whose own solution this verifier cannot grade: nobody's answer could count"""
    score: Literal["pass@1", "reward"] = "pass@1"
    """the headline: the share of right answers, or the mean reward where part of an answer counts"""
    per_prompt: int = 16
    temperature: float = 0.6
    top_p: float = 0.95
    max_tokens: int = 32_768
    problems: int | None
    """how many the whole benchmark has"""
    source: str
    licence: str


def _mathematics(title: str, problems: int, source: str, licence: str, **more: Any) -> Benchmark:
    return Benchmark(
        title=title, problems=problems, source=source, licence=licence, layout=layouts.final_answer,
        columns="question or problem; answer, or solution with a box", template=BOXED, verifier="math", **more,
    )  # fmt: skip


def _programs(title: str, problems: int, source: str, licence: str, columns: str, **more: Any) -> Benchmark:
    return Benchmark(
        title=title, problems=problems, source=source, licence=licence, layout=layouts.programs,
        columns=columns, template=PROGRAM, verifier="code", **more,
    )  # fmt: skip


_MAA = "problems by the MAA, no licence stated"

_TOO_LARGE = frozenset(("HumanEval/83", "HumanEval/130", "HumanEval/160"))  # results of a million digits or numbers

BENCHMARKS: dict[str, Benchmark] = {
    "aime24": _mathematics(
        "AIME 2024", 30, "HuggingFaceH4/aime_2024", _MAA, hub=("HuggingFaceH4/aime_2024", None, "train")
    ),
    "aime25": _mathematics("AIME 2025", 30, "math-ai/aime25", _MAA, hub=("math-ai/aime25", None, "test")),
    "amc": _mathematics(
        "AMC 12, 2022 and 2023", 83, "AI-MO/aimo-validation-amc (the paper's 2022 + 2023)", _MAA, files=("amc23",),
        hub=("AI-MO/aimo-validation-amc", None, "train"),
    ),
    "math500": _mathematics(
        "MATH-500", 500, "HuggingFaceH4/MATH-500", "MIT (MATH)", files=("math_500",),
        hub=("HuggingFaceH4/MATH-500", None, "test"),
    ),
    "minerva": _mathematics(
        "Minerva Math", 272, "math-ai/minervamath; Qwen2.5-Math evaluation/data/minerva_math",
        "CC BY-NC-SA (MIT OpenCourseWare)", files=("minerva_math",), hub=("math-ai/minervamath", None, "test"),
    ),
    "olympiadbench": _mathematics(
        "OlympiadBench, mathematics, English, open-ended", 674, "Hothan/OlympiadBench, OE_TO_maths_en_COMP",
        "Apache-2.0", files=("olympiadbench_math_en",), hub=("Hothan/OlympiadBench", "OE_TO_maths_en_COMP", "train"),
    ),
    "gsm8k": _mathematics(
        "GSM8K", 1319, "openai/gsm8k", "MIT", files=("gsm8k_test",), hub=("openai/gsm8k", "main", "test"),
        max_tokens=4096,
    ),
    "humaneval": Benchmark(
        title="HumanEval", layout=layouts.function, columns="prompt, entry_point, test, canonical_solution or answer",
        template=COMPLETE, verifier="code", problems=164, source="openai/openai_humaneval", licence="MIT",
        hub=("openai/openai_humaneval", None, "test"), max_tokens=8192,
    ),
    "humaneval_plus": Benchmark(
        title="HumanEval+", layout=layouts.function, files=("humanevalplus",), meta={"plus": True},
        unjudged=_TOO_LARGE,
        columns="prompt, entry_point, canonical_solution or answer; base_input and plus_input, or test",
        template=COMPLETE, verifier="code", problems=164, source="evalplus/humanevalplus", licence="Apache-2.0",
        hub=("evalplus/humanevalplus", None, "test"), max_tokens=8192,
    ),
    "mbpp": Benchmark(
        title="MBPP, test split", layout=layouts.assertions, columns="text or prompt, test_list, code or answer",
        template=WRITE, verifier="code", problems=500, source="google-research-datasets/mbpp", licence="CC BY 4.0",
        hub=("google-research-datasets/mbpp", "full", "test"), max_tokens=8192,
    ),
    "mbpp_plus": Benchmark(
        title="MBPP+", layout=layouts.function, files=("mbppplus",), meta={"plus": True},
        columns="prompt, entry_point, answer, base_input and plus_input; or prompt, code, test_list, test",
        template=WRITE, verifier="code", problems=378, source="evalplus/mbppplus", licence="Apache-2.0",
        hub=("evalplus/mbppplus", None, "test"), max_tokens=8192,
    ),
    "apps": _programs(
        "APPS, test split", 5000, "codeparrot/apps", "MIT", "question, input_output; solutions, starter_code",
        hub=("codeparrot/apps", "all", "test"),
    ),
    "codecontests": _programs(
        "CodeContests, test split", 165, "deepmind/code_contests", "CC BY 4.0",
        "description, public_tests, private_tests, generated_tests; solutions", files=("code_contests",),
        hub=("deepmind/code_contests", None, "test"),
    ),
    "codeforces": _programs(
        "Codeforces, test split", 468, "open-r1/codeforces", "CC BY 4.0",
        "description, input_format, output_format, examples, official_tests", hub=("open-r1/codeforces", None, "test"),
    ),
    "taco": _programs(
        "TACO, test split", 1000, "BAAI/TACO", "Apache-2.0", "question, input_output; solutions, starter_code",
        hub=("BAAI/TACO", "ALL", "test"),
    ),
    "reasoning_gym": Benchmark(
        title="Reasoning Gym, all tasks, 100 held-out problems each", layout=None, generated="reasoning_gym",
        columns="generated", template=TAGGED, verifier="gym", meta={"mode": "partial"}, score="reward", problems=None,
        source="the installed reasoning-gym", licence="Apache-2.0",
    ),
    "gpqa": Benchmark(
        title="GPQA Diamond", layout=layouts.choice, files=("gpqa_diamond",),
        columns="Question, Correct Answer, Incorrect Answer 1 to 3", template=LETTER, verifier="choice", problems=198,
        source="Idavidrein/gpqa (ask its authors for access, and do not publish its questions)", licence="CC BY 4.0",
        hub=("Idavidrein/gpqa", "gpqa_diamond", "train"),
    ),
    "arc": Benchmark(
        title="ARC Challenge, test split", layout=layouts.choice, files=("arc_challenge_test", "arc_challenge"),
        columns="question, choices (text, label), answerKey; or question, choices, labels, answer", template=LETTER,
        verifier="choice", problems=1172, source="allenai/ai2_arc", licence="CC BY-SA 4.0",
        hub=("allenai/ai2_arc", "ARC-Challenge", "test"), max_tokens=8192,
    ),
    "ifeval": Benchmark(
        title="IFEval, strict, all instructions of a prompt", layout=layouts.instruction,
        columns="prompt, instruction_id_list, kwargs", template="{question}", verifier="instruction", problems=541,
        source="google/IFEval", licence="Apache-2.0", hub=("google/IFEval", None, "train"), max_tokens=8192,
    ),
    "ifbench": Benchmark(
        title="IFBench, the rows that can be scored here (five of its 58 checks)", layout=layouts.instruction,
        columns="prompt, instruction_id_list, kwargs", template="{question}", verifier="instruction", problems=300,
        source="allenai/IFBench_test", licence="ODC-BY 1.0", hub=("allenai/IFBench_test", None, "train"),
        max_tokens=8192,
    ),
    "knights_and_knaves": Benchmark(
        title="Knights and Knaves, 3 to 7 people", layout=layouts.knights_and_knaves, generated="knights_and_knaves",
        columns="question or quiz, names, solution", files=("kk_test", "kk"), template=ROLES, verifier="gym",
        problems=500, source="K-and-K/knights-and-knaves, or generated by reasoning-gym", licence="CC BY-NC-SA 4.0",
        max_tokens=8192,
    ),
}  # fmt: skip


def benchmark(name: str) -> tuple[str, Benchmark]:
    """A benchmark and its own name, however the name is written: ``MATH-500`` is ``math500``, ``HumanEval+`` too.

    Raises:
        DataError: there is none; the message names the nearest.
    """
    plain = _plain(name)
    for known, found in BENCHMARKS.items():
        if plain == _plain(known):
            return known, found
    near = difflib.get_close_matches(plain, [_plain(known) for known in BENCHMARKS], n=1, cutoff=0.5)
    meant = [known for known in BENCHMARKS if _plain(known) in near]
    hint = f"did you mean {meant[0]}? " if meant else ""
    raise DataError(f"no benchmark is called {name!r}; {hint}All of them: {', '.join(BENCHMARKS)}")


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.casefold().replace("+", "plus"))
