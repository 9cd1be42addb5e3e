"""The verifier against 978 recorded verdicts; each difference was read: docs/verifiers-instruction.md lists them."""

from brorl.group import Outcome, Prompt
from brorl.verifiers.instruction import follows_loose, follows_strict, verify_instruction
from shared_data import shared_rows

# (response, place of the instruction) -> our verdicts, strict and loose, all decided to be right.
ADJUDICATED = {
    ("ifeval/1219|phi-3", 2): (False, False),  # keywords:frequency
    ("ifeval/1265|phi-3", 0): (False, False),  # keywords:existence
    ("ifeval/1332|phi-3", 0): (False, False),  # combination:two_responses
    ("ifeval/1645|phi-3", 0): (True, True),  # change_case:english_capital
    ("ifeval/1954|phi-3", 0): (True, True),  # length_constraints:nth_paragraph_first_word
    ("ifeval/2250|phi-3", 0): (True, True),  # length_constraints:nth_paragraph_first_word
    ("ifeval/2266|phi-3", 0): (True, True),  # length_constraints:number_sentences
    ("ifeval/247|phi-3", 0): (False, False),  # combination:two_responses
    ("ifeval/2596|phi-3", 0): (False, False),  # combination:two_responses
    ("ifeval/3415|phi-3", 0): (True, True),  # length_constraints:number_words
    ("ifeval/3455|phi-3", 0): (False, False),  # change_case:capital_word_frequency
    ("ifeval/3456|phi-3", 1): (True, True),  # change_case:english_capital
    ("ifeval/3623|phi-3", 1): (False, True),  # language:response_language
    ("ifeval/1314|gpt2", 0): (True, True),  # change_case:capital_word_frequency
    ("ifeval/1314|gpt2", 1): (False, False),  # change_case:capital_word_frequency
    ("ifeval/1653|gpt2", 0): (True, True),  # change_case:capital_word_frequency
    ("ifeval/1996|gpt2", 0): (True, True),  # change_case:capital_word_frequency
    ("ifeval/2275|gpt2", 0): (False, False),  # change_case:capital_word_frequency
    ("ifeval/3414|gpt2", 0): (False, False),  # change_case:capital_word_frequency
    ("ifeval/3414|gpt2", 1): (True, True),  # change_case:capital_word_frequency
    ("ifeval/1332|mistral-7b-instruct", 0): (False, False),  # combination:two_responses
    ("ifeval/2266|mistral-7b-instruct", 0): (False, True),  # length_constraints:number_sentences
    ("ifeval/2918|mistral-7b-instruct", 0): (False, False),  # combination:two_responses
    ("ifeval/1967|phi-3-no-instruction", 1): (True, True),  # length_constraints:number_sentences
    ("ifeval/2749|phi-3-no-instruction", 0): (False, False),  # length_constraints:number_sentences
    ("ifeval/3241|phi-3-no-instruction", 0): (False, True),  # language:response_language
    ("ifeval/3305|phi-3-no-instruction", 2): (False, False),  # keywords:existence
    ("ifeval/3623|phi-3-no-instruction", 1): (False, False),  # language:response_language
    ("ifeval/3669|phi-3-no-instruction", 1): (False, True),  # language:response_language
}  # fmt: skip


def test_verdicts_of_single_instructions():
    differences = {}
    total = 0
    for row in shared_rows("data/outputs_ifeval.jsonl"):
        recorded = zip(row["strict_list"], row["loose_list"], strict=True)
        instructions = zip(row["instruction_id_list"], row["kwargs"], strict=True)
        for place, ((name, kwargs), theirs) in enumerate(zip(instructions, recorded, strict=True)):
            text = row["completion"]
            ours = (follows_strict(text, name, kwargs), follows_loose(text, name, kwargs))
            total += 1
            if ours != theirs:
                differences[row["id"], place] = ours
    assert total == 1404
    assert differences == ADJUDICATED


def test_verdicts_of_whole_responses():
    rows = shared_rows("data/outputs_ifeval.jsonl")
    different = set()
    for row in rows:
        score = verify_instruction(
            Prompt(id=row["id"], text=row["prompt"], meta={**row, "reward": "all"}), row["completion"]
        )
        assert score.outcome != Outcome.UNSCORABLE
        assert score.parts["loose"] >= score.parts["strict"]
        if (score.outcome == Outcome.CORRECT) != row["strict_all"]:
            different.add(row["id"])
    assert different <= {response for response, _ in ADJUDICATED}
    assert len(different) == 14
