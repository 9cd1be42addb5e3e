"""Every handed case of the areas group, loss, rollout and shaping, run against the functions it is about.

`CHECKS` names, for each case, the inputs that tell it from the others and the function that runs it; a case that none
or two of them claim fails. The area resume is in `test_resume_cases`.
"""

import ast
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import processors
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedModel

from brorl.algorithms.advantages import ADVANTAGES, GroupRewards, estimate
from brorl.algorithms.losses import K3_VALUE_CLAMP, KL_ESTIMATORS
from brorl.algorithms.selection import select
from brorl.algorithms.shaping import Responses, overlong, shape, stop_properly
from brorl.algorithms.weights import edge_weights, token_weights
from brorl.engines.local import LocalEngine, stop_token_ids
from brorl.engines.protocol import SampleRequest, Sampling
from brorl.errors import RecipeError
from brorl.group import Fate, Finish, Outcome, Prompt, RolloutGroup, ScoredGroup
from brorl.learner.learner import Learner, LearnerSettings
from brorl.learner.objective import Objective, TrainingGroup
from brorl.metrics import error_share
from brorl.recipe_file import parse_recipe
from brorl.rundir import RunDirectory
from brorl.tasks.rendering import NoChatTemplateWarning, Rendering, render
from brorl.tasks.rows import TaskRow
from brorl.theory.cost import ModelShape, StepShape, step_cost
from brorl.theory.coverage import activity
from brorl.verifiers.grading import scored
from brorl.verifiers.score import Score
from command_line import brorl
from shared_data import cases
from tiny_models import tiny_model
from tiny_policy import character_tokenizer, write_recipe, write_rows

Case = dict[str, Any]
STOPS = (2, 7, 9)


def prompt(name: str = "p") -> Prompt:
    return Prompt(id=name, text="", token_ids=np.array([5, 6, 7], np.int32))


def rewarded(rewards: list[float], name: str = "p") -> ScoredGroup:
    """A group whose rollout i is the two-token response [i, 2]; NaN is unscorable."""
    group = RolloutGroup.from_sequences(prompt(name), [[10 + i, 2] for i in range(len(rewards))])
    outcomes = [Outcome.UNSCORABLE if r != r else Outcome.CORRECT if r >= 1 else Outcome.WRONG for r in rewards]
    return ScoredGroup(group=group, rewards=np.array(rewards, np.float32), outcomes=np.array(outcomes, np.uint8))


def flat(rewards: list[float] | np.ndarray) -> GroupRewards:
    values = np.asarray(rewards, np.float64)
    ones = np.ones(len(values), np.int64)
    return GroupRewards(rewards=values, counts=ones, lengths=ones * 5, correct=np.nan_to_num(values, nan=-1) >= 1)


def written_out(text: str) -> list[float]:
    """``[0.0] + [0.95]*7`` and ``0.1 x 512`` as lists."""
    if match := re.fullmatch(r"([\d.]+) x (\d+)", text):
        return [float(match[1])] * int(match[2])
    parts = re.findall(r"(\[[^\]]*\])(?:\*(\d+))?", text.replace("NaN", "None"))
    values = [x for part, n in parts for x in ast.literal_eval(part) * int(n or 1)]
    return [float("nan") if x is None else float(x) for x in values]


# group -------------------------------------------------------------------------------------------------------------

ESTIMATORS: dict[str, tuple[str, dict[str, Any]]] = {
    "mean+std": ("grpo", {"ddof": 0}),
    "mean+std (unbiased, torch default)": ("grpo", {"ddof": 1}),
    "mean+std (unbiased)": ("grpo", {"ddof": 1}),
    "leave-one-out mean": ("rloo", {}),
    "mean only": ("dr_grpo", {}),
    "mean+std, zero-variance tolerance 1e-4": ("grpo", {}),
    "leave-one-out mean + leave-one-out std": ("rloo", {}),
}


def estimator_values(case: Case, _: Path) -> None:
    name, arguments = ESTIMATORS[case["input"]["estimator"]]
    rewards = written_out(case["input"]["rewards"])
    [advantage] = estimate(lambda groups: ADVANTAGES[name](groups, **arguments), [flat(rewards)])
    best, worst = int(np.argmax(rewards)), int(np.argmin(rewards))
    if isinstance(case["expect"], dict):
        assert advantage[best] == pytest.approx(case["expect"]["winner"], rel=1e-4)
        assert advantage[worst] == pytest.approx(case["expect"]["loser"], rel=1e-4)
    elif "lone loser" in case["expect"]:
        assert advantage[worst] == pytest.approx(-0.95)
        assert np.isfinite(advantage).all()
    else:
        assert "constant" in case["expect"] or "exactly 0" in case["expect"]
        assert (advantage == 0).all()


def constant_in_float32(case: Case, _: Path) -> None:
    rewards = np.array(written_out(case["input"]["rewards"]), np.float32)
    for estimator in ADVANTAGES.values():
        [advantage] = estimate(estimator, [flat(rewards)])
        assert (advantage == 0).all()


def unscorable_row(case: Case, _: Path) -> None:
    group = rewarded(written_out(case["input"]["rewards"]))
    [advantage] = estimate(ADVANTAGES["dr_grpo"], [flat(group.rewards)])
    np.testing.assert_allclose(advantage, [0, -1 / 3, 2 / 3, -1 / 3])
    assert group.scored_rollouts == 3
    [weights] = token_weights([group.group], "token_mean", keep=[group.scorable])
    np.testing.assert_allclose(weights, [0, 1 / 6, 1 / 6, 1 / 6])


def unscorable_group(case: Case, _: Path) -> None:
    group = rewarded(written_out(case["input"]["rewards"]))
    selection = select([group], wanted=1)
    assert [g.fate for g in selection.set_aside] == [Fate.CONSTANT]
    assert error_share([group]) == 1.0


def dead_groups(case: Case, _: Path) -> None:
    rewards = ast.literal_eval("[" + case["input"]["groups"].partition("rewards ")[2] + "]")
    selection = select([rewarded(r, str(i)) for i, r in enumerate(rewards)], wanted=3)
    assert len(selection.trained) == 1
    [weights] = token_weights([g.group for g in selection.trained], "prompt_mean")
    assert (selection.trained[0].group.end_counts * weights).sum() * 2 == pytest.approx(1)  # one group, two tokens each


def nothing_to_learn_from(_: Case, home: Path) -> None:
    quiet = {"heldout_prompts": 0, "training_prompts": 0}
    recipe = write_recipe(home, steps=10, selection={"max_rounds": 3}, evaluation=quiet)
    rows = [{"id": f"q{i}", "question": f"say {i}?", "answer": "never-[0-9]{30}"} for i in range(9)]
    write_rows(home / "data.jsonl", rows)
    done = brorl("train", recipe, "--run", home / "run", cwd=home, check=False)
    records = RunDirectory.open(home / "run").read_metrics()
    assert [r["rounds"] for r in records] == [3, 3, 3]
    assert [r["kept_share"] for r in records] == [0, 0, 0]
    assert "update skipped" in done.text
    assert done.returncode != 0
    assert list((home / "run" / "checkpoints").iterdir())


def training_group(
    group: RolloutGroup, advantages: np.ndarray, *, aggregation: str = "token_mean", reference: float | None = None
) -> TrainingGroup:
    """Old log-probabilities are today's; those of the reference policy are all `reference`."""
    [weights] = token_weights([group], aggregation)
    return TrainingGroup(
        group=group,
        advantages=advantages,
        weights=weights,
        old_logprobs=None,
        ref_logprobs=None if reference is None else np.full(group.nodes, reference, np.float32),
    )


def learner(model: PreTrainedModel | None = None, *, kl: float = 0.0, max_tokens: int = 4096) -> Learner:
    objective = Objective(kl_coefficient=kl, correction="none")
    return Learner(
        model or tiny_model("llama"), LearnerSettings(objective=objective, max_tokens=max_tokens, max_nodes=8)
    )


def drawn(
    rollouts: int, *, key: int = 0, temperature: float = 1.0, model: PreTrainedModel | None = None
) -> RolloutGroup:
    engine = LocalEngine(model or tiny_model("llama"))
    asked = [SampleRequest(prompt=prompt(), rollouts=rollouts, key=(key, 0))]
    sampling = Sampling(max_new_tokens=6, stop_token_ids=STOPS, temperature=temperature)
    return next(group for _, group in engine.sample(asked, sampling))


def size(gradient: dict[str, torch.Tensor]) -> float:
    return float(torch.cat([g.flatten() for g in gradient.values()]).norm())


def kl_of_a_dead_group(case: Case, _: Path) -> None:
    """The rule in docs/recipe.md: dropped, it has no KL term; trained on with drop_constant false, only that."""
    dead = rewarded(written_out(case["input"]["rewards"]))
    assert select([dead], wanted=1).trained == ()
    assert select([dead], wanted=1, drop_constant=False).trained[0].group is dead.group
    group = drawn(8)
    item = training_group(group, np.zeros(group.distinct), reference=-2.0)
    assert size(learner(kl=case["input"]["beta"]).gradient([item])) > 0
    assert size(learner().gradient([item])) == 0


def gradients_by_micro_batch(_: Case, __: Path) -> None:
    group = drawn(512)
    rng = np.random.default_rng(0)
    item = training_group(group, rng.normal(size=group.distinct))
    whole, split = (learner(max_tokens=tokens).gradient([item]) for tokens in (10**9, 32))
    assert size({name: whole[name] - split[name] for name in whole}) <= 1e-6 * size(whole)


def tokens_before_the_start(case: Case, _: Path) -> None:
    asked = case["input"]
    step = StepShape(
        prompts=asked["prompts"],
        rollouts=asked["N"],
        prompt_tokens=20,
        response_tokens=asked["completion_len"],
        distinct_node_share=1.0,
        drawn_prompts=asked["prompts"],
    )
    model = ModelShape(weights=900_000, parameters=1_000_000, layers=4, hidden=128, kv_width=128, vocabulary=512)
    cost = step_cost(model, step, flops_per_second=1e11)
    assert f"{cost.tokens / 1e6:.1f}M" in case["expect"]
    assert cost.memory_mib > 0


def chance_of_both(case: Case, _: Path) -> None:
    assert activity(np.array([case["input"]["p"]]), case["input"]["N"])[0] == pytest.approx(case["expect"], rel=2e-4)


def constant_component(_: Case, __: Path) -> None:
    """Components are added up and normalised once, so a component that is constant in a group leaves no trace."""
    rewards = np.array([1.0, 0.0, 0.0, 1.0, 0.0])
    for name in ("reinforce_pp_baseline", "grpo", "dr_grpo", "rloo"):
        shaped, _ = shape(responses(rewards), {"length": lambda given: np.full(len(given.rewards), -0.25)})
        [plain], [with_component] = (estimate(ADVANTAGES[name], [flat(r)]) for r in (rewards, shaped))
        np.testing.assert_allclose(plain, with_component, rtol=0, atol=1e-12)


# loss --------------------------------------------------------------------------------------------------------------


def masked_tokens(case: Case, _: Path) -> None:
    sequences = [[11, 12, 13, 14, 2]] * 5 + [[21, 22, 23, 24, 25]]
    group = RolloutGroup.from_sequences(prompt(), sequences, finish=[*[Finish.STOP] * 5, Finish.LENGTH])
    assert group.total_tokens == case["input"]["tokens"]
    [weights] = token_weights([group], "token_mean", keep=[group.finish != Finish.LENGTH])
    assert case["expect"] == "denominator 25"
    np.testing.assert_allclose(weights, [1 / 25, 0])


def lengths_over_micro_batches(case: Case, _: Path) -> None:
    groups = [
        RolloutGroup.from_sequences(prompt(), [list(range(3, 3 + n))]) for n in case["input"]["completion_lengths"]
    ]
    for weights in token_weights(groups, "token_mean"):
        np.testing.assert_allclose(weights, 1 / 102)


def eos_that_is_pad(case: Case, _: Path) -> None:
    asked = case["input"]
    length = asked["lengths"]
    group = RolloutGroup.from_sequences(prompt(), [asked["completion_ids"][:length]])
    assert group.lengths().tolist() == [length]
    [weights] = token_weights([group], "token_mean")
    trained = edge_weights(group, np.ones(1), weights).total > 0
    assert trained.tolist() == [True] * sum(ast.literal_eval(case["expect"].removeprefix("mask ")))


def several_stop_tokens(case: Case, _: Path) -> None:
    model = tiny_model("llama")
    assert model.generation_config is not None
    model.generation_config.eos_token_id = case["input"]["eos_ids"]
    assert case["input"]["last_token"] in stop_token_ids(model, character_tokenizer())
    group = drawn(256)
    ended = [int(ids[-1]) in STOPS for ids in group.responses()]
    assert {int(ids[-1]) for ids in group.responses()} >= set(STOPS)
    np.testing.assert_array_equal(ended, group.finish == Finish.STOP)


def absolute_positions(_: Case, __: Path) -> None:
    """Rows of different lengths share a batch; a model with learned absolute positions sees each as if alone."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = GPT2LMHeadModel(GPT2Config(vocab_size=48, n_positions=64, n_embd=32, n_layer=2, n_head=4)).eval()
    rows = [[4, 5, 6, 7, 8, 2], [9, 2], [10, 11, 12, 2]]
    groups = [RolloutGroup.from_sequences(prompt(str(i)), [row]) for i, row in enumerate(rows)]
    found = Learner(model, LearnerSettings(objective=Objective(kl_coefficient=0.0))).logprobs(groups)
    for group, row, values in zip(groups, rows, found, strict=True):
        ids = torch.tensor([[*group.prompt.token_ids.tolist(), *row]])
        with torch.no_grad():
            logprobs = model(ids).logits[0].log_softmax(-1)
        start = len(group.prompt.token_ids) - 1
        expected = [float(logprobs[start + t, token]) for t, token in enumerate(row)]
        np.testing.assert_allclose(values, expected, atol=1e-4)


def loss_value_is_no_signal(_: Case, __: Path) -> None:
    group = drawn(32)
    rewards = np.arange(group.distinct) % 2.0
    counts = group.end_counts.astype(np.float64)
    advantages = rewards - np.average(rewards, weights=counts)
    figures = learner().step([training_group(group, advantages, aggregation="sequence_mean")], 0.0)
    assert figures["loss"] == pytest.approx(0, abs=1e-6)
    assert figures["ratio_max"] == pytest.approx(1, abs=1e-5)
    assert figures["grad_norm"] > 0.01


def kl_is_clamped(case: Case, _: Path) -> None:
    for sign in (1, -1):
        value = KL_ESTIMATORS["k3"](torch.zeros(1), torch.tensor([sign * case["input"]["logratio"]]))
        assert value.isfinite().all()
        assert value.item() <= K3_VALUE_CLAMP


def k2_value_and_slope(case: Case, _: Path) -> None:
    logprob = torch.tensor([case["input"]["logratio"]], dtype=torch.float64, requires_grad=True)
    value = KL_ESTIMATORS["k2"](logprob, torch.zeros(1, dtype=torch.float64))
    value.sum().backward()
    assert value.item() == pytest.approx(case["expect"]["value"])
    assert logprob.grad is not None
    assert logprob.grad.item() == pytest.approx(case["expect"]["dvalue_dlogp"])


# rollout -----------------------------------------------------------------------------------------------------------


def different_streams(case: Case, _: Path) -> None:
    n, seed = case["input"]["n"], case["input"]["seed"]
    group, again = drawn(n, key=seed), drawn(n, key=seed)
    np.testing.assert_array_equal(group.tokens, again.tokens)
    np.testing.assert_array_equal(group.end_counts, again.end_counts)
    assert group.rollouts == n
    assert group.distinct > n / 4


def streams_by_step(case: Case, _: Path) -> None:
    n = case["input"]["n"]
    first, second = (drawn(n, key=step) for step in (0, 1))
    assert {bytes(r) for r in first.responses()} != {bytes(r) for r in second.responses()}


def logprobs_at_the_temperature(case: Case, _: Path) -> None:
    temperature = case["input"]["temperature"]
    group = drawn(64, temperature=temperature)
    assert group.logprobs is not None
    settings = LearnerSettings(objective=Objective(kl_coefficient=0.0), temperature=temperature)
    [mine] = Learner(tiny_model("llama"), settings).logprobs([group])
    ratio = np.exp(mine - group.logprobs)
    assert ratio.min() >= 0.95
    assert ratio.max() <= 1.05


def sampled_ids(case: Case, _: Path) -> None:
    """Two ways to spell one text are two responses, and each is trained on as it was sampled."""
    pieces = {3: case["input"]["sampled_ids"][0], 4: case["input"]["sampled_ids"][1], 5: case["input"]["text"]}

    class Pieces:
        def decode(self, token_ids: Any, /, *, skip_special_tokens: bool = True) -> str:
            return "".join(pieces[i] for i in token_ids)

    group = RolloutGroup.from_sequences(prompt(), [[3, 4], [5]])
    assert group.texts(Pieces()) == ["hello", "hello"]
    assert [ids.tolist() for ids in group.responses()] == [[3, 4], [5]]
    verdict = Score(outcome=Outcome.CORRECT, reward=1.0)
    assert scored(group, [verdict, verdict]).group.tokens.tolist() == [3, 4, 5]


def template() -> Any:
    tokenizer = character_tokenizer()
    tokenizer.chat_template = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"
    return tokenizer


def plain_prompt_for_a_chat_model(_: Case, __: Path) -> None:
    row = TaskRow(id="r", question="a + b?")
    with pytest.warns(NoChatTemplateWarning, match="plain text"):
        render(row, template(), Rendering(chat=False))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        render(row, template(), Rendering())


def one_bos(_: Case, __: Path) -> None:
    tokenizer = template()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", 1)]
    )
    assert tokenizer("a").input_ids[0] == 1  # it does add one
    found = render(TaskRow(id="r", question="a + b?"), tokenizer, Rendering())
    assert found is not None
    assert found.token_ids.tolist().count(1) == 1


# shaping -----------------------------------------------------------------------------------------------------------


def responses(rewards: np.ndarray, *, length: int = 3, limit: int = 8, truncated: bool = False) -> Responses:
    return Responses(
        rewards=np.asarray(rewards, np.float64),
        lengths=np.full(len(rewards), length),
        truncated=np.full(len(rewards), truncated),
        step=0,
        max_new_tokens=limit,
    )


def right_but_unfinished(case: Case, _: Path) -> None:
    asked = case["input"]
    given = responses(np.array([asked["reward"]]), length=8, truncated=asked["truncated"])
    addend = stop_properly(given, coefficient=asked["stop_properly_coef"])
    assert (given.rewards + addend).tolist() == [case["expect"]]


def overlong_ramp(case: Case, _: Path) -> None:
    asked = case["input"]
    given = responses(np.array([0.0]), length=asked["len"], limit=asked["max_len"])
    assert overlong(given, buffer=asked["buffer"], factor=asked["factor"])[0] == case["expect"]


def two_penalties(_: Case, __: Path) -> None:
    recipe = {"name": "r", "steps": 1, "tasks": [{"kind": "gym", "task": "chain_sum"}]}
    with pytest.raises(RecipeError, match="what a truncated response scores"):
        parse_recipe({**recipe, "algorithm": {"shaping": ["stop_properly", "overlong"]}})


CHECKS: list[tuple[str, dict[str, Any], Callable[[Case, Path], None]]] = [
    ("group", {"estimator": ...}, estimator_values),
    ("group", {"dtype": "float32"}, constant_in_float32),
    ("group", {"rewards": "[NaN,0,1,0]"}, unscorable_row),
    ("group", {"rewards": "[NaN]*8"}, unscorable_group),
    ("group", {"filter": "drop constant"}, dead_groups),
    ("group", {"groups": "all groups constant, rounds limit 3"}, nothing_to_learn_from),
    ("group", {"beta": ...}, kl_of_a_dead_group),
    ("group", {"per_device_batch": ...}, gradients_by_micro_batch),
    ("group", {"completion_len": ...}, tokens_before_the_start),
    ("group", {"quantity": "P(group has both outcomes)"}, chance_of_both),
    ("group", {"combine": ...}, constant_component),
    ("loss", {"mask_truncated": True}, masked_tokens),
    ("loss", {"micro_batches": ...}, lengths_over_micro_batches),
    ("loss", {"grad_accum": ...}, gradients_by_micro_batch),
    ("loss", {"completion_ids": ...}, eos_that_is_pad),
    ("loss", {"eos_ids": ...}, several_stop_tokens),
    ("loss", {"padding": ...}, absolute_positions),
    ("loss", {"num_iterations": 1}, loss_value_is_no_signal),
    ("loss", {"kl": "k3"}, kl_is_clamped),
    ("loss", {"kl": "k2 as loss"}, k2_value_and_slope),
    ("rollout", {"seed": 7}, different_streams),
    ("rollout", {"SamplingParams.seed": ...}, streams_by_step),
    ("rollout", {"sampler_logprobs": "raw"}, logprobs_at_the_temperature),
    ("rollout", {"sampled_ids": ...}, sampled_ids),
    ("rollout", {"prompt": "plain string"}, plain_prompt_for_a_chat_model),
    ("rollout", {"template": "adds BOS"}, one_bos),
    ("shaping", {"stop_properly_coef": ...}, right_but_unfinished),
    ("shaping", {"len": ...}, overlong_ramp),
    ("shaping", {"overlong_buffer": True}, two_penalties),
]


def checks_of(case: Case) -> list[Callable[[Case, Path], None]]:
    return [
        check
        for area, wanted, check in CHECKS
        if area == case["area"]
        and all(k in case["input"] and (v is ... or case["input"][k] == v) for k, v in wanted.items())
    ]


NUMBERS = {"group": 20, "loss": 9, "rollout": 6, "shaping": 4}


@pytest.mark.parametrize(("area", "number"), [(area, i) for area, n in NUMBERS.items() for i in range(n)])
def test_the_case_holds(area: str, number: int, tmp_path: Path) -> None:
    case = cases(area)[number]
    [check] = checks_of(case)
    check(case, tmp_path)


def test_there_is_no_other_case() -> None:
    assert {area: len(cases(area)) for area in NUMBERS} == NUMBERS
