"""One mixture of the recipe's five domains, in the columns their data sets have, trained and graded end to end."""

import json
from pathlib import Path
from typing import Any

import pytest

from brorl.build import open_parts
from brorl.group import Outcome
from brorl.metrics import TASK
from brorl.recipe_file import load_recipe
from command_line import brorl
from sandbox_needed import require_sandbox
from tiny_policy import save_tiny_policy, write_recipe, write_rows

pytestmark = pytest.mark.slow

ANSWERS = {
    "math": "so \\boxed{7}",
    "code": "```python\nprint(sum(map(int, input().split())))\n```",
    "stem": "Answer: B",
    "instruction": "red and blue",
}


def mixture(folder: Path) -> list[dict[str, Any]]:
    """Five tasks; no layout and no verifier is named."""
    sums = json.dumps({"inputs": ["1 2\n", "3 4\n"], "outputs": ["3\n", "7\n"]})
    files = {
        "math": [{"problem": f"what is {i} + {7 - i}?", "answer": "7", "solution": "count."} for i in range(40)],
        "code": [
            {
                "data_source": "taco",
                "prompt": [{"role": "system", "content": "act."}, {"role": "user", "content": f"add two numbers. {i}"}],
                "ability": "code",
                "reward_model": {"ground_truth": sums, "style": "rule"},
                "extra_info": {"index": i, "split": "dummy"},
            }
            for i in range(30)
        ],
        "stem": [
            {
                "domain": "chemistry",
                "problem": f"which of {i} is a metal?\n(A) wood\n(B) iron",
                "extract_solution": "(B) iron",
            }
            for i in range(30)
        ],
        "instruction": [
            {
                "input": [{"role": "user", "content": f"name {i} colours without commas."}],
                "args": {"instruction_id_list": ["punctuation:no_comma"], "instruction_kwargs": [{}]},
                "category": "instruction_following",
                "system_prompt": "detailed thinking off",
            }
            for i in range(30)
        ],
    }
    tasks = [
        {"kind": "file", "path": str(write_rows(folder / f"{name}.jsonl", rows)), "weight": 2 if name == "math" else 1}
        for name, rows in files.items()
    ]
    gym = {"kind": "gym", "task": "chain_sum", "args": {"min_terms": 2, "max_terms": 2, "min_digits": 1}}
    return [*tasks, gym]


def recipe(folder: Path) -> Path:
    save_tiny_policy(folder / "model", context=512)
    return write_recipe(
        folder,
        steps=2,
        tasks=mixture(folder),
        rollouts={"per_prompt": 16, "prompts_per_step": 12, "max_new_tokens": 12},
        selection={"drop_constant": False},
        evaluation={"heldout_prompts": 12, "training_prompts": 0, "rollouts": 4, "ks": [1]},
        verification={"workers": 2},
    )


def test_five_verifiers_grade_the_rollouts_of_one_run(tmp_path: Path) -> None:
    require_sandbox()
    done = brorl("train", recipe(tmp_path), "--run", "run", "--json", "out.json", cwd=tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == 2
    for line in lines:
        assert set(line["tasks"]) == {"math", "code", "stem", "instruction", "chain_sum"}
        assert sum(task["groups"] for task in line["tasks"].values()) == 12
        assert line["tasks"]["math"]["groups"] == 4, "a weight of 2 in 6"
        for name, task in line["tasks"].items():
            assert sum(task["outcomes"].values()) == 16 * task["groups"], name
            assert not {"error", "unscorable"} & task["outcomes"].keys(), name
            assert 0 <= task["pass_at_1"] <= 1
        assert line["tasks"]["instruction"]["outcomes"]["correct"] > 0, "text without commas is within a novice's reach"
        assert line["tasks"]["instruction"]["kept_share"] > 0
        assert line["grad_norm"] > 0
    info = json.loads((tmp_path / "run" / "run.json").read_text())
    assert info["contamination"]["checked"] > 100
    assert info["contamination"]["removed"] == 0
    assert (tmp_path / "run" / "contamination.jsonl").read_text() == ""
    assert "left out" not in done.text


def test_each_verifier_tells_right_from_wrong(tmp_path: Path) -> None:
    """The same five tasks, as the trainer loads them: right answers are paid, wrong ones are not."""
    require_sandbox()
    with open_parts(load_recipe(recipe(tmp_path))) as parts:
        seen = set[str]()
        for position in range(12):
            prompt = parts.data.prompt_at(position)
            assert prompt is not None
            right = ANSWERS.get(prompt.meta[TASK], f"<answer>{prompt.answer}</answer>")
            wrong = {"instruction": "red, blue", "stem": "Answer: A"}.get(
                prompt.meta[TASK], "\\boxed{8} <answer>x</answer>"
            )
            pool = parts.rollouts.pool
            assert pool.submit(prompt, right).result().outcome is Outcome.CORRECT, prompt
            assert pool.submit(prompt, wrong).result().reward == 0, prompt
            seen.add(prompt.verifier)
        assert seen == {"math", "code", "choice", "instruction", "gym"}
