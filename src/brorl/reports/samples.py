"""The rollouts that a report shows: exploration trees of chosen prompts, and rows of a table."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from brorl.errors import DataError
from brorl.group import Decoder, Outcome, ScoredGroup
from brorl.reports.exploration import explore
from brorl.reports.reading import RunView, spread
from brorl.reports.tokens import run_decoder
from brorl.reports.untrusted import one_line, visible
from brorl.storage import Tallies, read_groups

TREE_PAIRS = 6
"""pairs of trees per report, shared between its runs"""
TREE_TEXT = 60_000
"""characters of one tree's branches, together"""
RICH = 60
"""distinct responses beyond which a tree is not more interesting"""
TABLE_ROWS = 4000
TABLE_GROUPS = 40
"""of each step or evaluation"""
TABLE_TEXT = 1_200_000
"""characters of the table's responses, together"""
RESPONSE = 600
"""characters of one response; the middle of longer ones is left out"""

Json = dict[str, Any]


def tree_pairs(views: Sequence[RunView]) -> list[Json]:
    """Trees to look at: the same prompt at the first and last evaluation, and prompts of the first and last step.

    Keys of a pair: ``title``, ``left`` and ``right``, each None or a tree with ``label``, ``prompt``, ``answer``,
    ``rollouts``, ``distinct``, ``nodes``, ``tokens``, ``texts`` and the arrays of `Exploration`.
    """
    share = max(TREE_PAIRS // max(len(views), 1), 1)
    found = [(view, pair, what) for view in views for pair, what in _pairs(view, share)]
    _cut_shared_text([tree for _, pair, _ in found for tree in pair if tree])
    return [
        {"title": (f"{view.name}: " if len(views) > 1 else "") + _title(pair, what), "left": pair[0], "right": pair[1]}
        for view, pair, what in found
    ]


def _pairs(view: RunView, wanted: int) -> Iterator[tuple[list[Json | None], str]]:
    decoder = run_decoder(view.run)
    trained = sorted(view.visits)
    same = list(_same_prompt(view, wanted))
    apart = _different_prompts(view, trained, max(wanted - len(same), (wanted + 1) // 2)) if trained else []
    for (left, right), what in [*((pair, "same prompt") for pair in same), *((pair, "") for pair in apart)]:
        trees = [None if at is None else _tree(view, at, decoder) for at in (left, right)]
        if any(trees):
            yield trees, what


def _cut_shared_text(trees: Sequence[Json]) -> None:
    """Leave out of the prompts shown what all of them share at their ends, such as a chat template."""
    prompts = list({tree["prompt"] for tree in trees})
    if len(prompts) < 2:
        return
    head, tail = _shared_head(prompts), _shared_head([prompt[::-1] for prompt in prompts])[::-1]
    head = head[: head.rfind("\n") + 1]
    starts = [at for at in (tail.find("<"), tail.find("\n")) if at >= 0]  # of a template's tag, or of a line
    tail = tail[min(starts) :] if starts else ""
    for tree in trees:
        middle = tree["prompt"][len(head) : len(tree["prompt"]) - len(tail)]
        if middle.strip():
            tree["prompt"] = f"{'… ' if head.strip() else ''}{middle.strip()}{' …' if tail.strip() else ''}"


def _shared_head(texts: Sequence[str]) -> str:
    """What all texts begin with; the first and the last in order differ the earliest."""
    first, last = min(texts), max(texts)
    return first[: next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))]


def _title(trees: Sequence[Json | None], what: str) -> str:
    """The beginning of the prompt and how its pass rate went, or both prompts with theirs."""
    shown = [tree for tree in trees if tree]
    rates = [f"{tree['correct'][0] / max(tree['rollouts'], 1):.0%}" for tree in shown]
    if what:
        return f"{_beginning(shown[0], 90)} · {' → '.join(rates)} right · {what}"
    both = " | ".join(f"{_beginning(tree, 44)} · {rate}" for tree, rate in zip(shown, rates, strict=True))
    return f"{both} right · {'first and last step' if len(shown) == 2 else shown[0]['label']}"


def _beginning(tree: Json, size: int) -> str:
    asked = one_line(tree["prompt"].strip())
    return asked if len(asked) <= size else f"{asked[: size - 1]}…"


Place = tuple[str, Path, int]
"""(label, file, row)"""


def _same_prompt(view: RunView, wanted: int) -> Iterator[tuple[Place, Place | None]]:
    """Training prompts that came again, else evaluated ones; those whose pass rate moved most come first."""
    steps = sorted(view.visits)
    if len(steps) > 1:
        places = {step: view.run.group_file(step) for step in (steps[0], steps[-1])}
        pair = [(f"step {step}", places[step], view.visits[step]) for step in (steps[0], steps[-1])]
        found = list(_matched(pair, wanted))
        if found:
            yield from found
            return
    for name in dict.fromkeys(name for name, _ in view.evaluated):
        steps = sorted(step for found, step in view.evaluated if found == name)
        ends = list(dict.fromkeys((steps[0], steps[-1])))
        files = [view.run.evaluation_file(step, name).with_suffix(".parquet") for step in ends]
        pair = [(f"{name}, before step {step}" if step == 0 else f"{name}, after {step} steps", file,
                 view.evaluated[name, step]) for step, file in zip(ends, files, strict=True)]  # fmt: skip
        yield from _matched(pair, max(wanted // 3, 1))


def _matched(pair: Sequence[tuple[str, Path, Tallies]], wanted: int) -> Iterator[tuple[Place, Place | None]]:
    first, last = pair[0], pair[-1]
    rows = {prompt: row for row, prompt in enumerate(last[2].prompt_ids)}
    shared = [(row, rows[p]) for row, p in enumerate(first[2].prompt_ids) if p in rows]

    def moved(at: tuple[int, int]) -> float:
        change = _rate(last[2], at[1]) - _rate(first[2], at[0])
        return change * min(int(first[2].distinct[at[0]]), RICH)  # a tree of three branches shows little

    rising = sorted(shared, key=lambda at: (-moved(at), at))
    # By turns the largest rise and the largest fall: neither alone would be a fair picture.
    turns = [rising[i // 2] if i % 2 == 0 else rising[-1 - i // 2] for i in range(len(rising))]
    for row, then in turns[:wanted]:
        yield (first[0], first[1], row), (last[0], last[1], then) if len(pair) > 1 else None


def _different_prompts(view: RunView, steps: Sequence[int], wanted: int) -> list[tuple[Place, Place | None]]:
    ends = list(dict.fromkeys((steps[0], steps[-1])))
    columns: list[list[Place]] = []
    for step in ends:
        tallies = view.visits[step]
        rows = sorted(range(len(tallies.prompt_ids)), key=lambda row: (-_interest(tallies, row), row))
        columns.append([(f"step {step}", view.run.group_file(step), row) for row in rows[:wanted]])
    if len(columns) == 1:
        return [(place, None) for place in columns[0]]
    return [(left, right) for left, right in zip(*columns, strict=False)]


def _rate(tallies: Tallies, row: int) -> float:
    return int(tallies.correct[row]) / max(int(tallies.scored[row]), 1)


def _interest(tallies: Tallies, row: int) -> float:
    """Highest for prompts that are partly solved in many ways: their trees show both colours."""
    rate = _rate(tallies, row)
    return rate * (1 - rate) * min(int(tallies.distinct[row]), RICH)


def _tree(view: RunView, place: Place, decoder: Decoder) -> Json | None:
    label, file, row = place
    try:
        scored = read_groups(file, [row])[0]
    except (DataError, IndexError):
        return None
    tree = explore(scored, decoder, correct_threshold=view.threshold)
    room = max(TREE_TEXT // len(tree.texts), 24)
    group = scored.group
    return {
        **tree.as_json(),
        "label": label,
        "prompt": visible(group.prompt.text)[:4000],
        "answer": one_line(group.prompt.answer, 200),
        "rollouts": group.rollouts,
        "distinct": group.distinct,
        "nodes": group.nodes,
        "tokens": group.total_tokens,
        "texts": [_middle_out(text, room) for text in tree.texts],
    }


def _middle_out(text: str, room: int) -> str:
    shown = visible(text)
    if len(shown) <= room:
        return shown
    half = max(room // 2, 1)
    return f"{shown[:half]} […] {shown[-half:]}"


def table_rows(views: Sequence[RunView]) -> Json:
    """Responses of the first and last step and of the newest evaluations, prompt by prompt, the commonest first.

    Keys: ``prompts`` (text, answer), ``sources``, ``parts`` (names), ``rows``: [source, prompt, response, count,
    outcome, reward, part ...]; ``left_out``, how many distinct responses of these groups are not in it.
    """
    places = [place for view in views for place in _table_places(view)]
    found: Json = {"prompts": [], "sources": [label for label, _, _, _ in places], "parts": [], "rows": [],
                   "left_out": 0}  # fmt: skip
    parts: list[dict[str, float]] = []
    budget = TABLE_TEXT // max(len(places), 1)
    for source, (_, file, count, decoder) in enumerate(places):
        try:
            groups = read_groups(file, spread(count, TABLE_GROUPS))
        except DataError:
            continue
        each = max(TABLE_ROWS // len(places) // max(len(groups), 1), 1)
        text = budget // max(len(groups), 1)
        for scored in groups:
            _group_rows(found, parts, source, scored, decoder, each, text)
    found["parts"] = sorted({name for row in parts for name in row})
    for row, values in zip(found["rows"], parts, strict=True):
        row += [values.get(name) for name in found["parts"]]
    return found


def _table_places(view: RunView) -> Iterator[tuple[str, Path, int, Decoder]]:
    """(label, file, groups in it, tokenizer)"""
    decoder = run_decoder(view.run)
    steps = sorted(view.visits)
    for step in dict.fromkeys([*steps[:1], *steps[-1:]]):
        yield f"{view.name}, step {step}", view.run.group_file(step), len(view.visits[step].prompt_ids), decoder
    for name in dict.fromkeys(name for name, _ in view.evaluated):
        step = max(step for found, step in view.evaluated if found == name)
        file = view.run.evaluation_file(step, name).with_suffix(".parquet")
        count = len(view.evaluated[name, step].prompt_ids)
        yield f"{view.name}, {name} after {step} steps", file, count, decoder


def _group_rows(
    found: Json, parts: list[dict[str, float]], source: int, scored: ScoredGroup, decoder: Decoder, each: int, text: int
) -> None:
    group = scored.group
    found["prompts"].append([visible(group.prompt.text)[:1000], one_line(group.prompt.answer, 200)])
    paths = list(group.responses())
    order = sorted(range(group.distinct), key=lambda k: (-int(group.end_counts[k]), k))
    for rank, k in enumerate(order):
        if rank >= each or (text <= 0 and rank):
            found["left_out"] += group.distinct - rank
            return
        response = _middle_out(str(decoder.decode(paths[k].tolist(), skip_special_tokens=True)), RESPONSE)
        text -= len(response)
        outcome = Outcome(int(scored.outcomes[k])).name.lower()
        reward = round(float(scored.rewards[k]), 4)
        found["rows"].append([source, len(found["prompts"]) - 1, response, int(group.end_counts[k]), outcome, reward])
        parts.append({name: round(float(values[k]), 4) for name, values in scored.parts.items()})
