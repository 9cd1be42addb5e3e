"""What a run's figures mean, in plain words: each verdict is a written rule on figures that it shows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import mean, median
from typing import Any, Literal

import numpy as np

from brorl.reports.health_charts import phase_names
from brorl.reports.reading import RunView
from brorl.reports.score_charts import pass_rates
from brorl.theory.pass_at_k import Interval, clustered_interval

Level = Literal["good", "neutral", "warning", "bad"]

FEW_KEPT = 0.3
"""below this kept share most of what is drawn teaches nothing"""
COLLAPSE = 0.35
"""entropy now over entropy at the start, below which exploration is narrowing for good"""
HIGH_KL = 0.1
"""nats per token; beyond, the policy is another model than its reference"""
KL_SPIKE = 10.0
"""times the median"""
MANY_CUT = 0.1
MANY_CLIPPED = 0.2
LONG_PHASE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One statement with what it rests on."""

    run: str
    topic: str
    level: Level
    text: str
    rule: str
    figures: Mapping[str, Any]
    section: str
    """id of the page's section with the chart"""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def verdicts(views: Sequence[RunView]) -> list[Verdict]:
    """Every verdict that the runs' figures allow, run by run, then the runs against the first."""
    rules = (_status, _scores, _lost, _kept, _breadth, _probed, _entropy, _kl, _clipping, _truncation, _unscorable,
             _skipped, _phases, _guards)  # fmt: skip
    found = [verdict for view in views for rule in rules for verdict in rule(view)]
    for view in views[1:]:
        found += _against(views[0], view)
    return found


def paired_change(before: Mapping[str, float], after: Mapping[str, float]) -> Interval | None:
    """Mean change of the pass rate over prompts in both, with its 95 % bootstrap interval over prompts."""
    shared = [prompt for prompt in before if prompt in after]
    return clustered_interval([after[p] - before[p] for p in shared]) if len(shared) > 1 else None


def direction(change: Interval) -> str:
    """``rising`` or ``falling`` where the interval excludes no change, else ``flat``."""
    return "rising" if change.low > 0 else "falling" if change.high < 0 else "flat"


def _status(view: RunView) -> Iterator[Verdict]:
    status, reason = view.info.get("status", "unknown"), view.info.get("reason")
    done, wanted = len(view.records), view.recipe.steps
    levels: dict[str, Level] = {"failed": "bad", "finished": "good"}
    words = {
        "finished": f"Finished: {done} of {wanted} steps.",
        "failed": f"Failed after {done} of {wanted} steps: {reason}",
        "stopped": f"Stopped after {done} of {wanted} steps; go on with brorl train --resume.",
        "running": f"Running, or killed without a word: {done} of {wanted} steps are recorded.",
    }
    yield Verdict(
        run=view.name,
        topic="status",
        level=levels.get(status, "neutral"),
        text=words.get(status, f"{str(status).capitalize()}: {done} of {wanted} steps are recorded."),
        rule="as run.json says",
        figures={"status": status, "steps": done, "of": wanted},
        section="summary",
    )


def _scores(view: RunView) -> Iterator[Verdict]:
    for name in dict.fromkeys(name for name, _ in view.evaluated):
        steps = sorted(step for found, step in view.evaluated if found == name)
        first, last = view.evaluated[name, steps[0]], view.evaluated[name, steps[-1]]
        change = paired_change(pass_rates(first), pass_rates(last)) if len(steps) > 1 else None
        if change is None:
            continue
        trend = direction(change)
        levels: dict[str, Level] = {"rising": "good", "falling": "bad"}
        words = {
            "rising": f"pass@1 on the {name} prompts is rising",
            "falling": f"pass@1 on the {name} prompts is falling",
            "flat": f"pass@1 on the {name} prompts is flat: no change that {change.problems} prompts can show",
        }
        yield Verdict(
            run=view.name,
            topic=f"{name} pass@1",
            level=levels.get(trend, "neutral"),
            text=f"{words[trend]}, {change.value:+.3f} from step {steps[0]} to {steps[-1]}.",
            rule="paired over the same prompts: rising or falling where the 95 % bootstrap interval excludes zero",
            figures={"change": change.value, "low": change.low, "high": change.high, "prompts": change.problems,
                     "from_step": steps[0], "to_step": steps[-1]},
            section="scores",
        )  # fmt: skip


def _lost(view: RunView) -> Iterator[Verdict]:
    """Prompts solved at the start and not once now, beyond what chance alone would hide."""
    for name in dict.fromkeys(name for name, _ in view.evaluated):
        steps = sorted(step for found, step in view.evaluated if found == name)
        if len(steps) < 2:
            continue
        before, after = pass_rates(view.evaluated[name, steps[0]]), pass_rates(view.evaluated[name, steps[-1]])
        last = view.evaluated[name, steps[-1]]
        draws = dict(zip(last.prompt_ids, last.scored.tolist(), strict=True))
        solved = [p for p in before if before[p] > 0 and p in after]
        lost = [p for p in solved if after[p] == 0]
        gained = [p for p in before if before[p] == 0 and after.get(p, 0) > 0]
        chance = sum((1 - before[p]) ** draws[p] for p in solved)
        many = len(lost) > chance + 2 * max(chance, 1.0) ** 0.5
        yield Verdict(
            run=view.name,
            topic=f"{name} prompts lost",
            level="warning" if many else "neutral",
            text=f"Of {len(solved)} {name} prompts solved at least once at the start, {len(lost)} are not solved any "
            f"more ({chance:.1f} expected by chance); {len(gained)} are newly solved.",
            rule="a warning where more are lost than chance with unchanged pass rates explains, by two standard "
            "deviations",
            figures={"solved": len(solved), "lost": len(lost), "by_chance": chance, "gained": len(gained)},
            section="scores",
        )


def _ends(view: RunView, key: str) -> tuple[float, float, int] | None:
    """Means of the first and the last tenth of the steps (at least one, at most 20), and how many steps have it."""
    values = [float(r[key]) for r in view.records if r.get(key) is not None and np.isfinite(r[key])]
    if not values:
        return None
    span = min(max(len(values) // 10, 1), 20)
    return mean(values[:span]), mean(values[-span:]), len(values)


def _kept(view: RunView) -> Iterator[Verdict]:
    ends = _ends(view, "kept_share")
    if ends is None:
        return
    first, last, steps = ends
    low = last < FEW_KEPT
    n = view.recipe.rollouts.per_prompt
    tail = "most of what is drawn carries no signal: change the tasks or raise N" if low else "the rest is all right "\
        "or all wrong"  # fmt: skip
    yield Verdict(
        run=view.name,
        topic="kept share",
        level="warning" if low else "good",
        text=f"{last:.0%} of the groups carry a learning signal at N = {n:,}; {tail}.",
        rule=f"last tenth of the steps; a warning below {FEW_KEPT:.0%}",
        figures={"first": first, "last": last, "steps": steps},
        section="breadth",
    )


def _breadth(view: RunView) -> Iterator[Verdict]:
    narrow = next((p for p in view.curve if p.rollouts == 16), None)
    wide = view.curve[-1] if view.curve else None
    if narrow is None or wide is None or wide.rollouts <= 16 or view.given_up:
        return
    gain = wide.kept_share.value - narrow.kept_share.value
    yield Verdict(
        run=view.name,
        topic="what N buys",
        level="good" if gain > 0.05 else "neutral",
        text=f"The same prompts would carry signal in {narrow.kept_share.value:.0%} of the groups at N = 16, and do in "
        f"{wide.kept_share.value:.0%} at N = {wide.rollouts:,}.",
        rule="newest groups sub-sampled without replacement; good where the share grows by more than 5 points",
        figures={"at_16": asdict(narrow.kept_share), "at_n": asdict(wide.kept_share), "n": wide.rollouts},
        section="breadth",
    )


def _probed(view: RunView) -> Iterator[Verdict]:
    probed = [r["probe"] for r in view.records if "probe" in r]
    if not probed:
        return
    changes = [p["q_pos"] for p in probed if p["q_pos"]["prompts"]]
    up, down = sum(c["low"] > 0 for c in changes), sum(c["high"] < 0 for c in changes)
    retained = probed[-1]["retained_mass"]
    kept = "" if retained is None else f" {retained:.0%} of the starting policy's correct mass is retained."
    yield Verdict(
        run=view.name,
        topic="measured updates",
        level="good" if up > down else "warning" if down > up else "neutral",
        text=f"Of {len(probed)} measured updates {up} raised the correct mass of held-out prompts, {down} lowered it, "
        f"{len(probed) - up - down} left it undecided.{kept}",
        rule="an update counts where the 90 % interval of its change excludes zero",
        figures={"updates": len(probed), "up": up, "down": down, "retained_mass": retained},
        section="breadth",
    )


def _entropy(view: RunView) -> Iterator[Verdict]:
    ends = _ends(view, "entropy")
    if ends is None or ends[2] < 2 or ends[0] <= 0:
        return
    first, last, steps = ends
    ratio = last / first
    level: Level = "bad" if ratio < COLLAPSE / 2 else "warning" if ratio < COLLAPSE else "neutral"
    words = {
        "bad": "Entropy has collapsed: hundreds of rollouts will repeat each other. Lower the learning rate, or raise "
        "the KL weight or clip-higher",
        "warning": "Entropy is falling fast: exploration narrows",
        "neutral": "Entropy is in order",
    }
    yield Verdict(
        run=view.name,
        topic="entropy",
        level=level,
        text=f"{words[level]} ({first:.3f} to {last:.3f} nats per token).",
        rule=f"last over first tenth of the steps: a warning below {COLLAPSE}, collapsed below {COLLAPSE / 2}",
        figures={"first": first, "last": last, "ratio": ratio, "steps": steps},
        section="health",
    )


def _kl(view: RunView) -> Iterator[Verdict]:
    values = [r["kl"] for r in view.records if r.get("kl") is not None and np.isfinite(r["kl"])]
    if not values:
        return
    middle, most = median(values), max(values)
    spike = len(values) >= 5 and middle > 0 and most > KL_SPIKE * middle and most > HIGH_KL
    high = values[-1] > HIGH_KL
    text = "The policy has moved far from its reference" if high else "The policy stays near its reference"
    spiked = f"; the largest KL, {most:.2e}, is {most / middle:.0f} times the median" if spike else ""
    yield Verdict(
        run=view.name,
        topic="KL",
        level="warning" if high or spike else "neutral",
        text=f"{text} (KL {values[-1]:.2e} nats per token){spiked}.",
        rule=f"a warning above {HIGH_KL} nats per token, now or in a spike of {KL_SPIKE:.0f} times the median",
        figures={"last": values[-1], "median": middle, "max": most},
        section="health",
    )


def _clipping(view: RunView) -> Iterator[Verdict]:
    both = [r["clip_high"] + r["clip_low"] for r in view.records if "clip_high" in r and "clip_low" in r]
    if both and median(both) > MANY_CLIPPED:
        yield Verdict(
            run=view.name,
            topic="clipping",
            level="warning",
            text=f"{median(both):.0%} of the trained tokens are clipped: the steps are too large for the clip range. "
            "Lower the learning rate.",
            rule=f"median over the steps above {MANY_CLIPPED:.0%}",
            figures={"median": median(both), "max": max(both)},
            section="health",
        )


def _truncation(view: RunView) -> Iterator[Verdict]:
    ends = _ends(view, "truncated_share")
    if ends and ends[1] > MANY_CUT:
        yield Verdict(
            run=view.name,
            topic="truncation",
            level="warning",
            text=f"{ends[1]:.0%} of the rollouts are cut at {view.recipe.rollouts.max_new_tokens} tokens and score 0: "
            "raise rollouts.max_new_tokens or shorten the answers.",
            rule=f"last tenth of the steps above {MANY_CUT:.0%}",
            figures={"first": ends[0], "last": ends[1]},
            section="health",
        )


def _unscorable(view: RunView) -> Iterator[Verdict]:
    shares = [r.get("outcome_error", 0.0) + r.get("outcome_unscorable", 0.0) for r in view.records]
    if shares and max(shares) > 0.01:
        yield Verdict(
            run=view.name,
            topic="verification",
            level="warning",
            text=f"Up to {max(shares):.1%} of a step's rollouts could not be scored: look for a verifier that fails.",
            rule="any step above 1 %",
            figures={"max": max(shares), "mean": mean(shares)},
            section="health",
        )


def _skipped(view: RunView) -> Iterator[Verdict]:
    skipped = sum(r.get("skipped", 0.0) for r in view.records)
    empty = sum(r.get("fate_trained", 1) == 0 for r in view.records)
    if skipped or empty:
        yield Verdict(
            run=view.name,
            topic="skipped updates",
            level="warning",
            text=f"{skipped:.0f} optimizer steps were skipped for gradients that are not finite, and {empty} steps had "
            "no group to train on.",
            rule="any",
            figures={"skipped": skipped, "empty_steps": empty},
            section="health",
        )


def _phases(view: RunView) -> Iterator[Verdict]:
    if not view.records:
        return
    total = sum(r["seconds"]["total"] for r in view.records)
    seconds = {p: sum(r["seconds"].get(p, 0.0) for r in view.records) for p in phase_names(view.records)}
    if not seconds or total <= 0:
        return
    longest = max(seconds, key=lambda phase: seconds[phase])
    share = seconds[longest] / total
    yield Verdict(
        run=view.name,
        topic="time",
        level="neutral",
        text=f"A step takes {median(r['seconds']['total'] for r in view.records):.1f} s; {longest} is "
        f"{'most' if share > LONG_PHASE else 'the largest part'} of it ({share:.0%}).",
        rule="sums over all steps",
        figures={"seconds": {k: round(v, 3) for k, v in seconds.items()}, "total": total},
        section="health",
    )


def _guards(view: RunView) -> Iterator[Verdict]:
    """Warnings that the run itself recorded."""
    for warning in view.info.get("warnings", []):
        message = f"{warning['message']}. {warning.get('advice', '')}" if "message" in warning else str(warning)
        yield Verdict(
            run=view.name,
            topic="warning of the run",
            level="warning",
            text=message.strip(),
            rule="a guard of the run fired; recorded in run.json",
            figures={name: warning[name] for name in ("step", "guard") if name in warning},
            section="health",
        )


def _against(first: RunView, other: RunView) -> Iterator[Verdict]:
    """The last evaluations of two runs on the prompts that both have."""
    for name in dict.fromkeys(name for name, _ in first.evaluated):
        steps = [max((s for n, s in view.evaluated if n == name), default=None) for view in (first, other)]
        if steps[0] is None or steps[1] is None:
            continue
        change = paired_change(pass_rates(first.evaluated[name, steps[0]]), pass_rates(other.evaluated[name, steps[1]]))
        if change is None:
            continue
        words = {"rising": "ends above", "falling": "ends below", "flat": "ends level with"}[direction(change)]
        yield Verdict(
            run=other.name,
            topic=f"against {first.name}",
            level="neutral",
            text=f"On the {name} prompts {other.name} {words} {first.name}: {change.value:+.3f} pass@1.",
            rule="last evaluations, paired over the same prompts; level where the 95 % interval includes zero",
            figures={"difference": change.value, "low": change.low, "high": change.high, "prompts": change.problems,
                     "steps": steps},
            section="scores",
        )  # fmt: skip
