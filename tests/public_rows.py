"""Rows in the layouts that benchmarks are published in, written by hand: for those whose data is not in the shared
data. Each comes with an answer that is right; wrong ones are `brorl.evaluation.fixed.CANARIES`."""

import json
from typing import Any

_ECHO = "print(sum(map(int, input().split())))"

PUBLIC_ROWS: dict[str, list[dict[str, Any]]] = {
    "aime25": [
        {"id": "0", "problem": "Sum of all bases $b>9$ for which $17_b$ divides $97_b$?", "answer": "70"},
        {"id": "1", "problem": "What is $600 - 12$?", "answer": "588"},
        {"problem": "What is 7 + 9?", "answer": 16},
    ],
    "amc": [
        {"id": 0, "problem": "What is $3+\\frac{1}{3+\\frac13}$ times ten?", "answer": 33.0, "url": "https://example.org"},
        {"id": 1, "problem": "What is $150 - 8$?", "answer": 142.0, "url": "https://example.org"},
    ],
    "math500": [
        {"problem": "Simplify $\\frac{6}{4}$.", "solution": "It is $\\boxed{\\frac{3}{2}}$.", "answer": "\\frac{3}{2}",
         "subject": "Algebra", "level": 1, "unique_id": "test/algebra/1.json"},
    ],
    "minerva": [
        {"problem": "A body moves 3 m in 2 s. Its speed?", "solution": "\\[\\boxed{1.5}\\] m/s.", "type": "Physics"},
    ],
    "olympiadbench": [
        {"id": 1606, "question": "Solve $x^2 = 4$.", "final_answer": ["$2$,$-2$"], "unit": None,
         "is_multiple_answer": True, "answer_type": "Numerical", "subfield": "Algebra", "solution": ["..."]},
    ],
    "gsm8k": [{"question": "Half of 2,468?", "answer": "2468/2 = <<2468/2=1234>>1234\n#### 1,234"}],
    "humaneval": [
        {"task_id": "HumanEval/0", "prompt": "def double(x):\n    \"\"\"Twice x.\"\"\"\n", "entry_point": "double",
         "canonical_solution": "    return 2 * x\n", "test": "def check(candidate):\n    assert candidate(2) == 4\n"},
    ],
    "mbpp": [
        {"task_id": 11, "text": "Write a function to double a number.", "code": "def double(x):\r\n    return 2 * x",
         "test_list": ["assert double(2) == 4", "assert double(0) == 0"], "test_setup_code": ""},
    ],
    "mbpp_plus": [
        {"task_id": 2, "prompt": "Write a function to double a number.", "code": "def double(x):\n    return 2 * x",
         "test_imports": [], "test_list": ["assert double(2) == 4"],
         "test": "inputs = [[1], [5]]\nresults = [2, 10]\nfor i, (inp, exp) in enumerate(zip(inputs, results)):\n"
                 "    assert double(*inp) == exp\n"},
    ],
    "apps": [
        {"problem_id": 0, "question": "Read two numbers and print their sum.", "solutions": json.dumps([_ECHO]),
         "input_output": json.dumps({"inputs": ["1 2\n", "10 20\n"], "outputs": ["3\n", "30\n"]}),
         "difficulty": "interview", "starter_code": "", "url": "https://example.org"},
        {"problem_id": 1, "question": "Return the sum of two numbers.",
         "solutions": json.dumps(["class Solution:\n    def add(self, a, b):\n        return a + b"]),
         "input_output": json.dumps({"fn_name": "add", "inputs": [[1, 2], [5, 5]], "outputs": [3, 10]}),
         "difficulty": "introductory", "url": "https://example.org",
         "starter_code": "class Solution:\n    def add(self, a: int, b: int) -> int:\n        "},
    ],
    "taco": [
        {"question": "Read two numbers and print their sum.", "solutions": json.dumps([_ECHO]), "starter_code": "",
         "input_output": json.dumps({"inputs": ["1 2\n"], "outputs": ["3\n"]}), "difficulty": "EASY"},
    ],
    "codecontests": [
        {"name": "1_A. Sum", "description": "Read two numbers and print their sum.", "difficulty": 7,
         "public_tests": {"input": ["1 2\n"], "output": ["3\n"]}, "private_tests": {"input": [], "output": []},
         "generated_tests": {"input": ["4 4\n"], "output": ["8\n"]},
         "solutions": {"language": [2, 3], "solution": ["int main() {}", _ECHO]},
         "time_limit": {"seconds": 2, "nanos": 0}, "memory_limit_bytes": 268435456},
    ],
    "codeforces": [
        {"id": "1/A", "title": "Sum", "description": "Add two numbers.", "input_format": "Two integers.",
         "output_format": "Their sum.", "note": None, "examples": [{"input": "1 2", "output": "3"}],
         "official_tests": [{"input": "1 2\n", "output": "3\n"}, {"input": "3 3\n", "output": "6\n"}],
         "time_limit": 2.0, "memory_limit": 256.0, "generated_checker": None, "solutions": [_ECHO]},
        {"id": "1/B", "title": "Any", "description": "Print any number.", "generated_checker": "print(1)",
         "official_tests": [{"input": "1\n", "output": "1\n"}]},
    ],
    "gpqa": [
        {"Record ID": "rec0", "Question": "Which of these is a noble gas?", "Correct Answer": "Neon",
         "Incorrect Answer 1": "Iron", "Incorrect Answer 2": "Gold", "Incorrect Answer 3": "Zinc",
         "High-level domain": "Chemistry"},
        {"Record ID": "rec1", "Question": "Which is a boson?", "Correct Answer": "Photon",
         "Incorrect Answer 1": "Electron", "Incorrect Answer 2": "Proton", "Incorrect Answer 3": "Neutron",
         "High-level domain": "Physics"},
    ],
    "arc": [
        {"id": "Mercury_1", "question": "What is hot?", "answerKey": "2",
         "choices": {"text": ["ice", "fire", "snow", "rain"], "label": ["1", "2", "3", "4"]}},
    ],
    "knights_and_knaves": [
        {"quiz": "Zoey says: I am a knight and Oliver is a knave. Who is who?", "names": ["Zoey", "Oliver"],
         "solution": [True, False], "solution_text": "...", "index": 0},
    ],
}  # fmt: skip
"""benchmark -> rows; every row but Codeforces' second can be asked, and has a gold."""
