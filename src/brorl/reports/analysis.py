"""The analysis of rollouts as terminal tables."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

CURVE_COLUMNS = (
    ("kept_share", "kept share", ".3f"),
    ("pass_at_n", "pass@N", ".3f"),
    ("distinct_correct", "distinct correct", ".1f"),
    ("unseen_mass_good_turing", "unseen (Good-Turing)", ".3f"),
    ("unseen_mass", "unseen mass", ".3f"),
    ("u2_bound", "U2 bound", ".1e"),
    ("certified_share", "certified", ".3f"),
)


def analysis_report(figures: Mapping[str, Any]) -> Iterator[RenderableType]:
    """The figures of `brorl.evaluation.analysis.analyze`, section by section; what cannot be measured is named."""
    source = figures["source"]
    yield (
        f"[bold]{source['prompts']} prompts[/], {source['groups'] or source['prompts']} groups, "
        f"{source['rollouts']:,} rollouts ({source['unscorable']:,} not scorable), layout {source['layout']}"
    )
    if source["groups_of_other_size_left_out"]:
        yield (
            f"{source['groups_of_other_size_left_out']} groups of another size than {source['rollouts_per_prompt']} "
            "are not independent draws and stay out of the figures at each N"
        )
    yield from _pass_rates(figures["pass_rates"])
    yield "\n[bold]as a function of N[/] (means over prompts; 95 % intervals, clustered by prompt, with --json)"
    yield _curve(figures["by_rollouts"])
    if any("certified_share" in point and point["certified_share"] is None for point in figures["by_rollouts"]):
        yield "- : not measurable; the drawn responses hold a negligible share of the probability"
    yield from _lines(figures)
    for lack in source["lacks"]:
        yield f"not recorded: {escape(lack)}"


def _pass_rates(rates: Mapping[str, Any]) -> Iterator[str]:
    yield "\n[bold]pass rates[/]"
    for name, title in (
        ("mean", "mean"), ("share_all_wrong", "all wrong"), ("share_all_right", "all right"), ("share_kept", "kept"),
    ):  # fmt: skip
        yield f"  {title:10} {_interval(rates[name], '.3f')}"
    most = max(rates["histogram"])
    for i, count in enumerate(rates["histogram"]):
        yield f"  {i / 10:.1f}-{(i + 1) / 10:.1f}  {'#' * round(40 * count / most):40} {count}"


def _curve(points: list[Mapping[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    present = [column for column in CURVE_COLUMNS if any(column[0] in point for point in points)]
    for title in ("N", "prompts", *(title for _, title, _ in present)):
        table.add_column(title, justify="right")
    for point in points:
        cells = [f"{point[name]['value']:{form}}" if point[name] else "-" for name, _, form in present]
        table.add_row(f"{point['rollouts']:,}", str(point["prompts"]), *cells)
    return table


def _lines(figures: Mapping[str, Any]) -> Iterator[str]:
    lost = figures["shrinkage"]
    if lost:
        yield (
            f"\n[bold]knowledge shrinkage[/]: of {lost['prompts_solved_at_start']} prompts solved at the start (step "
            f"{lost['start_step']} on), {lost['prompts_lost']} are not solved once now "
            f"({lost['prompts_lost_expected_by_chance']:.1f} expected by chance); {lost['prompts_gained']} gained"
        )
        if "correct_answers_at_start" in lost:
            yield (
                f"  {lost['correct_answers_drawn_again']} of {lost['correct_answers_at_start']} distinct correct "
                "answers of the start were drawn again"
            )
    entropy = figures["entropy"]
    if entropy:
        yield (
            f"[bold]entropy[/]: {_interval(entropy['nats_per_token'], '.3f')} nats per token, "
            f"{_interval(entropy['nats_per_response'], '.2f')} per response"
        )
    length = figures["length"]
    if length and length["unit"]:
        both = [f"{length[name]:.0f}" if length[name] is not None else "-" for name in ("correct", "wrong")]
        yield (
            f"[bold]length[/]: correct {both[0]}, wrong {both[1]} {length['unit']}; wrong minus correct within a "
            f"prompt {_interval(length['wrong_minus_correct_within_prompt'], '.1f')}"
        )
    growth = figures["node_growth"]
    if growth:
        yield f"[bold]trie[/]: nodes grow as N^{growth['alpha']:.2f} from {growth['nodes_of_one_rollout']:.0f}"


def _interval(value: Mapping[str, Any] | None, form: str) -> str:
    if value is None:
        return "not measurable"
    return f"{value['value']:{form}} \\[{value['low']:{form}}, {value['high']:{form}}]"
