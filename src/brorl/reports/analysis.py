"""The analysis of rollouts as terminal tables."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

CURVE_COLUMNS = (
    ("kept_share", "kept share", ".3f"),
    ("pass_at_n", "pass@N", ".3f"),
    ("distinct_correct", "distinct\ncorrect", ".1f"),
    ("unseen_mass_good_turing", "drawn\nonce", ".3f"),
    ("unseen_mass", "unseen\nmass", ".3f"),
    ("u2_bound", "U2\nbound", ".1e"),
    ("certified_share", "certified", ".3f"),
)
LEGEND = {
    "unseen_mass_good_turing": "drawn once: share of the rollouts; estimates the mass of all responses not drawn "
    "(Good-Turing)",
    "unseen_mass": "unseen mass: what the drawn responses leave of the probability, exactly",
    "u2_bound": "U2 bound: the sum of p^2 over all responses not drawn is at most this",
    "certified_share": "certified: share of groups whose correct mass must grow to first order under the paper's "
    "surrogate",
}


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
    if source["groups_in_curves"] < source["groups"] - source["groups_of_other_size_left_out"]:
        yield f"figures at each N, entropy and lengths: of the newest {source['groups_in_curves']} groups"
    yield from _pass_rates(figures["pass_rates"])
    yield "\n[bold]as a function of N[/] (means over prompts; 95 % intervals, clustered by prompt, with --json)"
    yield from _curve(figures["by_rollouts"])
    with_logprobs = not any(lack.startswith("log-probabilities") for lack in source["lacks"])
    if with_logprobs and any(point.get("certified_share") is None for point in figures["by_rollouts"]):
        yield "unseen mass: not measurable where the drawn responses hold a negligible share of the probability"
    yield from _course(figures["by_steps"])
    yield from _lines(figures)
    yield from _probe(figures["probe"])
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


def _curve(points: list[Mapping[str, Any]]) -> Iterator[RenderableType]:
    present = [column for column in CURVE_COLUMNS if any(point.get(column[0]) for point in points)]
    table = _table("N", "prompts", *(title for _, title, _ in present))
    for point in points:
        cells = [f"{point[name]['value']:{form}}" if point[name] else "-" for name, _, form in present]
        table.add_row(f"{point['rollouts']:,}", str(point["prompts"]), *cells)
    yield table
    yield from (f"[dim]{LEGEND[name]}[/]" for name, _, _ in present if name in LEGEND)


def _course(spans: list[Mapping[str, Any]]) -> Iterator[RenderableType]:
    if len(spans) < 2:
        return
    yield "\n[bold]over the steps[/]"
    table = _table("steps", "groups", "pass rate", "kept share", "distinct responses")
    for span in spans:
        table.add_row(
            f"{span['first_step']}-{span['last_step']}", f"{span['groups']:,}", f"{span['pass_rate']:.3f}",
            f"{span['kept_share']:.3f}",
            "-" if span["distinct_response_share"] is None else f"{span['distinct_response_share']:.3f}",
        )  # fmt: skip
    yield table


def _probe(updates: list[Mapping[str, Any]] | None) -> Iterator[RenderableType]:
    if not updates:
        return
    yield "\n[bold]measured updates[/] (probe: means over held-out prompts; all correct with its 90 % interval)"
    table = _table("step", "drawn\ncorrect", "drawn\nwrong", "undrawn", "all correct", "retained\nmass")
    for update in updates[-12:]:
        change, retained = update["q_pos"], update["retained_mass"]
        told = f"{change['value']:+.1e} ({change['low']:+.1e} to {change['high']:+.1e})" if change["prompts"] else "-"
        table.add_row(
            str(update["step"]), f"{update['p_pos']:+.1e}", f"{update['p_neg']:+.1e}", f"{update['unseen_mass']:+.1e}",
            told, "-" if retained is None else f"{retained:.3f}",
        )  # fmt: skip
    yield table
    bank = updates[-1]
    yield (
        f"[dim]retained mass: what the policy still gives to the {bank['bank_answers']:,} distinct correct answers "
        f"that the starting policy drew on {bank['bank_prompts']} held-out prompts; 1 at the start[/]"
    )


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, justify="right")
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
