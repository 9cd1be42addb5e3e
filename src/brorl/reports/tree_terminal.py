"""The exploration tree in a terminal: a line per branch, its width a bar, its success a symbol and a colour."""

from collections.abc import Iterator

from rich.text import Text

from brorl.group import ScoredGroup
from brorl.reports.exploration import Exploration
from brorl.reports.untrusted import one_line

BAR = 12
"""cells of the bar of a branch that all rollouts take"""
_EIGHTHS = " ▏▎▍▌▋▊▉█"
NUMBERS = 30
"""cells at the end of a line: rollouts, bar, success"""


def tree_lines(scored: ScoredGroup, tree: Exploration, *, width: int = 100) -> Iterator[Text]:
    """The prompt, then each branch; no line is wider than `width` cells, and control characters show as symbols."""
    group, total = scored.group, max(tree.counts[0], 1)
    yield _cut(Text(one_line(group.prompt.text.strip()), style="bold"), width)
    answer = one_line(group.prompt.answer)
    if answer:
        yield _cut(Text(f"answer: {answer}", style="dim"), width)
    yield _cut(
        Text(
            f"{group.rollouts:,} rollouts, {tree.correct[0]:,} right ({tree.correct[0] / total:.1%}); "
            f"{group.distinct:,} distinct responses, {group.nodes:,} nodes for {group.total_tokens:,} tokens "
            f"({group.unique_ratio:.1%})"
        ),
        width,
    )
    last = _last_children(tree)
    rails: dict[int, str] = {0: ""}
    for i in range(1, len(tree.parents)):
        parent = tree.parents[i]
        corner = "└ " if last[i] else "├ "
        # Deep trees keep half of the line for text: the rails of the outermost levels go first.
        rail = (rails[parent] + corner)[-max(width // 3, 2) :]
        rails[i] = rails[parent] + ("  " if last[i] else "│ ")
        yield _line(tree, i, rail, total, width)


def _line(tree: Exploration, i: int, rail: str, total: int, width: int) -> Text:
    count, correct = tree.counts[i], tree.correct[i]
    style = "green" if correct == count else "red" if not correct else "yellow"
    room = max(width - len(rail) - NUMBERS, 4)
    label = _cut(Text(_label(tree, i)), room)
    label.pad_right(room - label.cell_len)
    line = Text(rail, style="dim")
    line.append_text(label)
    line.append(f" {count:>6,} ")
    line.append(_bar(count / total), style=style)
    line.append(f" {_symbol(correct, count)} {_share(correct, count)}", style=style)
    return _cut(line, width)


def _label(tree: Exploration, i: int) -> str:
    if tree.outcomes[i] == "rest":
        return f"… {tree.folded[i]:,} more response{'s' * (tree.folded[i] > 1)}"
    text = one_line(tree.texts[i], 400) or "(ends here)"
    return text if tree.outcomes[i] in ("", "correct", "wrong") else f"{text} [{tree.outcomes[i].replace('_', ' ')}]"


def _share(correct: int, count: int) -> str:
    share = correct / count
    return "right" if correct == count else "wrong" if not correct else f"{share:.{0 if 0.01 <= share <= 0.99 else 1}%}"


def _symbol(correct: int, count: int) -> str:
    return "●" if correct == count else "○" if not correct else "◐"


def _bar(share: float) -> str:
    eighths = max(round(share * BAR * 8), 1)
    return (("█" * (eighths // 8)) + _EIGHTHS[eighths % 8]).ljust(BAR)[:BAR]


def _cut(text: Text, width: int) -> Text:
    text.truncate(width, overflow="ellipsis")
    return text


def _last_children(tree: Exploration) -> list[bool]:
    last = [False] * len(tree.parents)
    newest: dict[int, int] = {}
    for i, parent in enumerate(tree.parents):
        newest[parent] = i
    for i in newest.values():
        last[i] = True
    return last
