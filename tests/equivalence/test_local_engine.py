"""The trie sampler against plain forward passes and plain sampling."""

import copy
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    GraniteConfig,
    GraniteForCausalLM,
    PreTrainedModel,
)

from brorl.engines.local import LocalEngine, stop_token_ids
from brorl.engines.protocol import SampleRequest, Sampling
from brorl.errors import DataError, ModelError, RunError
from brorl.group import Finish, Prompt, RolloutGroup
from brorl.seeding import generator
from shared_data import cases
from tiny_models import ARCHITECTURES, tiny_model
from tiny_policy import character_tokenizer

STOPS = (2, 5)
LENGTHS = (6, 1, 12, 6, 3)
"""of the prompts; the sliding window of the tiny Gemma is 5"""


def prompts(lengths: tuple[int, ...] = LENGTHS, vocabulary: int = 48) -> list[Prompt]:
    rng = generator("engine test prompts")
    return [
        Prompt(id=f"p{i}", text="", token_ids=rng.integers(3, vocabulary, length).astype(np.int32))
        for i, length in enumerate(lengths)
    ]


def requests(rollouts: int = 30, run: int = 1) -> list[SampleRequest]:
    return [SampleRequest(prompt=p, rollouts=rollouts, key=(run, 0, i)) for i, p in enumerate(prompts())]


def sampled(
    model: PreTrainedModel, asked: list[SampleRequest], sampling: Sampling, kv_budget_mib: float = 1024
) -> list[RolloutGroup]:
    groups = dict(LocalEngine(model, kv_budget_mib=kv_budget_mib).sample(asked, sampling))
    return [groups[i] for i in range(len(asked))]


def plain_probabilities(
    model: PreTrainedModel, prompt: Prompt, response: np.ndarray, temperature: float = 1.0
) -> torch.Tensor:
    """f64[T, V], the distribution before each token of a response, by a plain forward pass."""
    ids = torch.from_numpy(np.concatenate([prompt.token_ids, response])).long()
    with torch.no_grad():
        logits = model(ids[None]).logits[0, len(prompt.token_ids) - 1 : -1].double()
    return torch.softmax(logits / temperature, -1)


def logprobs_of(p: torch.Tensor, response: np.ndarray) -> np.ndarray:
    return p[torch.arange(len(response)), torch.from_numpy(response).long()].log().numpy()


def head_of(model: PreTrainedModel) -> torch.Tensor:
    head = model.get_output_embeddings()
    assert head is not None
    return head.weight


def embedding_of(model: PreTrainedModel) -> torch.Tensor:
    return model.get_input_embeddings().weight  # type: ignore[return-value]


def with_float64_norms(model: PreTrainedModel) -> PreTrainedModel:
    """transformers computes RMS norms in float32 whatever the dtype, so a last bit there can become 1e-7."""
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if type(child).__name__.endswith("RMSNorm"):
                gemma = type(child).__name__.startswith("Gemma")
                norm = nn.RMSNorm(child.weight.shape[0], child.eps if gemma else child.variance_epsilon)  # type: ignore[arg-type]
                norm.weight = nn.Parameter(child.weight.detach() + (1.0 if gemma else 0.0))  # type: ignore[operator]
                setattr(parent, name, norm)
    return model


def assert_same(ours: RolloutGroup, theirs: RolloutGroup, tolerance: float) -> None:
    for name in ("tokens", "parents", "counts", "ends", "end_counts", "finish"):
        assert np.array_equal(getattr(ours, name), getattr(theirs, name)), name
    assert ours.logprobs is not None
    assert theirs.logprobs is not None
    np.testing.assert_allclose(ours.logprobs, theirs.logprobs, rtol=0, atol=tolerance)
    assert ours.undrawn2 is not None
    assert theirs.undrawn2 is not None
    np.testing.assert_allclose(ours.undrawn2, theirs.undrawn2, rtol=0, atol=tolerance)


@pytest.mark.parametrize(
    ("dtype", "temperature", "tolerance"),
    [(torch.float32, 1.0, 1e-5), (torch.float32, 0.6, 1e-5 / 0.6), (torch.float64, 0.6, 1e-12)],
)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_node_equals_a_plain_forward_pass(
    architecture: str, dtype: torch.dtype, temperature: float, tolerance: float
) -> None:
    model = tiny_model(architecture, dtype=dtype)
    if dtype == torch.float64:
        model = with_float64_norms(model)
    sampling = Sampling(max_new_tokens=9, stop_token_ids=STOPS, temperature=temperature)
    for group in sampled(model, requests(), sampling):
        assert group.logprobs is not None
        assert group.undrawn2 is not None
        assert group.logprobs.dtype == (np.float64 if dtype == torch.float64 else np.float32)
        children: dict[int, list[int]] = {}
        for parent, token in zip(group.parents.tolist(), group.tokens.tolist(), strict=True):
            children.setdefault(parent, []).append(token)
        for path, response in zip(group.paths(), group.responses(), strict=True):
            p = plain_probabilities(model, group.prompt, response, temperature)
            np.testing.assert_allclose(group.logprobs[path], logprobs_of(p, response), rtol=0, atol=tolerance)
            for depth, node in enumerate([-1, *path[:-1].tolist()]):
                left_out = np.delete(p[depth].numpy(), children[node])
                np.testing.assert_allclose(group.undrawn2[node + 1], (left_out**2).sum(), rtol=1e-4, atol=1e-9)
            assert group.undrawn2[path[-1] + 1] == 0


@pytest.mark.parametrize("rollouts", [1, 2, 3, 17, 200])
def test_responses_end_at_the_first_stop_token_or_at_the_limit(rollouts: int) -> None:
    last_tokens: set[int] = set()
    for group in sampled(tiny_model("llama"), requests(rollouts), Sampling(max_new_tokens=7, stop_token_ids=STOPS)):
        assert group.rollouts == rollouts
        assert group.counts[group.parents == -1].sum() == rollouts
        for response, finish in zip(group.responses(), group.finish, strict=True):
            assert not np.isin(response[:-1], STOPS).any()
            last_tokens.add(int(response[-1]))
            if finish == Finish.STOP:
                assert response[-1] in STOPS
                assert len(response) <= 7
            else:
                assert response[-1] not in STOPS
                assert len(response) == 7
    if rollouts == 200:
        assert set(STOPS) <= last_tokens


def test_one_new_token() -> None:
    for group in sampled(tiny_model("llama"), requests(50), Sampling(max_new_tokens=1, stop_token_ids=STOPS)):
        assert (group.parents == -1).all()
        assert set(group.finish[np.isin(group.tokens[group.ends], STOPS)].tolist()) <= {int(Finish.STOP)}
        assert set(group.finish[~np.isin(group.tokens[group.ends], STOPS)].tolist()) == {int(Finish.LENGTH)}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_group_does_not_depend_on_its_company_or_on_memory(architecture: str) -> None:
    model = with_float64_norms(tiny_model(architecture, dtype=torch.float64))
    sampling = Sampling(max_new_tokens=14, stop_token_ids=STOPS)
    asked = requests(8)
    together = sampled(model, asked, sampling)
    assert together[0].logprobs is not None
    assert together[0].logprobs.dtype == np.float64
    token_mib = 2 * model.config.num_hidden_layers * 2 * 8 * 8 / 2**20
    for tokens in (1, 200):  # one row at a time, prompt by prompt; several cohorts and some parking
        again = sampled(model, asked, sampling, kv_budget_mib=tokens * token_mib)
        for ours, theirs in zip(together, again, strict=True):
            assert_same(ours, theirs, 1e-12)
    for ours, request in zip(together, asked, strict=True):
        assert_same(ours, sampled(model, [request], sampling)[0], 1e-12)


def test_float32_repeats_itself_and_rarely_flips_a_draw_in_other_company() -> None:
    model = tiny_model("llama")
    sampling = Sampling(max_new_tokens=12, stop_token_ids=STOPS)
    asked = requests(200)
    together = sampled(model, asked, sampling)
    for ours, again in zip(together, sampled(model, asked, sampling), strict=True):
        assert_same(ours, again, 0)
    flips = 0
    for ours, request in zip(together, asked, strict=True):
        alone = sampled(model, [request], sampling)[0]
        mine = Counter(dict(zip(map(bytes, ours.responses()), ours.end_counts.tolist(), strict=True)))
        other = Counter(dict(zip(map(bytes, alone.responses()), alone.end_counts.tolist(), strict=True)))
        flips += (mine - other).total()
    # About one draw in 10^5 lies within float32 rounding of a boundary; these are about 10^4.
    assert flips <= 5


def test_slots_with_one_prompt_differ_and_one_key_repeats() -> None:
    [case] = [case for case in cases("rollout") if "n" in case["input"] and "seed" in case["input"]]
    n, seed = case["input"]["n"], case["input"]["seed"]
    model, prompt = tiny_model("llama"), prompts()[0]
    asked = [SampleRequest(prompt=prompt, rollouts=n, key=(seed, 0, slot, 0)) for slot in (0, 1, 0)]
    sampling = Sampling(max_new_tokens=12, stop_token_ids=(2,), temperature=case["input"]["temperature"])
    first, second, repeated = sampled(model, asked, sampling)
    assert_same(first, repeated, 1e-5)
    assert first.distinct > n / 2  # different streams: a spread policy gives different responses
    assert {bytes(r) for r in first.responses()} != {bytes(r) for r in second.responses()}


def test_logprobs_are_those_at_the_sampling_temperature() -> None:
    [case] = [case for case in cases("rollout") if "sampler_logprobs" in case["input"]]
    temperature = case["input"]["temperature"]
    model = tiny_model("qwen3")
    sampling = Sampling(max_new_tokens=8, stop_token_ids=STOPS, temperature=temperature)
    for group in sampled(model, requests(), sampling):
        for logprob, response in zip(group.response_logprobs(), group.responses(), strict=True):
            p = plain_probabilities(model, group.prompt, response, temperature)
            ratio = np.exp(logprobs_of(p, response).sum().item() - logprob)
            assert 0.95 <= ratio <= 1.05
            assert ratio == pytest.approx(1, abs=1e-4)


def enumerate_responses(
    model: PreTrainedModel, prompt: Prompt, length: int, stop: int
) -> Iterator[tuple[tuple[int, ...], float]]:
    """Every possible response with its probability."""
    frontier: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
    while frontier:
        path, mass = frontier.pop()
        if path and (path[-1] == stop or len(path) == length):
            yield path, mass
            continue
        p = plain_probabilities(model, prompt, np.array([*path, 0], np.int32))[-1]
        frontier += [((*path, token), mass * float(p[token])) for token in range(len(p))]


def chi_square(observed: np.ndarray, expected: np.ndarray) -> tuple[float, int]:
    """The statistic and its degrees of freedom, cells expected below 5 put together."""
    rare = expected < 5
    o = np.append(observed[~rare], observed[rare].sum())
    e = np.append(expected[~rare], expected[rare].sum())
    o, e = o[e > 0], e[e > 0]
    return float(((o - e) ** 2 / e).sum()), len(e) - 1


def tally(groups: list[RolloutGroup]) -> Counter[tuple[int, ...]]:
    counts: Counter[tuple[int, ...]] = Counter()
    for group in groups:
        for response, count in zip(group.responses(), group.end_counts.tolist(), strict=True):
            counts[tuple(response.tolist())] += count
    return counts


@pytest.mark.parametrize(("groups", "rollouts"), [(1, 30_000), (60, 512), (2000, 17), (6000, 2), (5000, 1)])
def test_counts_follow_the_exact_distribution(groups: int, rollouts: int) -> None:
    model = tiny_model("llama", vocab_size=8, spread=1.2)
    [prompt] = prompts((4,), 8)
    exact = dict(enumerate_responses(model, prompt, 3, stop=2))
    assert sum(exact.values()) == pytest.approx(1)
    asked = [SampleRequest(prompt=prompt, rollouts=rollouts, key=("chi", groups, i)) for i in range(groups)]
    drawn = sampled(model, asked, Sampling(max_new_tokens=3, stop_token_ids=(2,)))
    counts = tally(drawn)
    assert set(counts) <= set(exact)
    observed = np.array([counts[response] for response in exact])
    statistic, freedom = chi_square(observed, np.array(list(exact.values())) * groups * rollouts)
    assert freedom > 50
    assert statistic < freedom + 4 * np.sqrt(2 * freedom)
    assert statistic > freedom - 4 * np.sqrt(2 * freedom)  # too even is wrong, too
    if rollouts == 2:  # the two rollouts of a group are independent of each other
        equal = sum(group.distinct == 1 for group in drawn)
        chance = sum(p**2 for p in exact.values())
        assert abs(equal - groups * chance) < 4 * np.sqrt(groups * chance * (1 - chance))


def test_counts_agree_with_plain_independent_sampling() -> None:
    model = tiny_model("gemma3", vocab_size=8, spread=1.2)
    [prompt] = prompts((7,), 8)
    n = 6000
    rng = torch.Generator().manual_seed(5)
    rows = torch.from_numpy(prompt.token_ids).long().expand(n, -1)
    for _ in range(3):
        with torch.no_grad():
            p = torch.softmax(model(rows).logits[:, -1], -1)
        rows = torch.cat([rows, torch.multinomial(p, 1, generator=rng)], 1)
    plain = Counter(map(tuple, rows[:, 7:].tolist()))
    ours = tally(
        sampled(
            model, [SampleRequest(prompt=prompt, rollouts=n, key=(3,))], Sampling(max_new_tokens=3, stop_token_ids=())
        )
    )
    both = [key for key in plain | ours if plain[key] + ours[key] >= 10]
    a, b = (np.array([counts[key] for key in both]) for counts in (plain, ours))
    statistic = ((a - b) ** 2 / (a + b)).sum()
    assert len(both) > 50
    assert statistic < len(both) + 4 * np.sqrt(2 * len(both))


def test_top_k_of_one_is_greedy() -> None:
    model = tiny_model("qwen2")
    for group in sampled(model, requests(9), Sampling(max_new_tokens=6, stop_token_ids=STOPS, top_k=1)):
        [response] = group.responses()
        p = plain_probabilities(model, group.prompt, response)
        assert response.tolist() == p.argmax(-1).tolist()
        assert group.logprobs is not None
        assert (group.logprobs == 0).all()


def test_truncated_sampling_records_the_truncated_distribution() -> None:
    model = tiny_model("llama")
    for group in sampled(model, requests(200), Sampling(max_new_tokens=3, stop_token_ids=STOPS, top_k=6, top_p=0.7)):
        assert group.logprobs is not None
        for path, response in zip(group.paths(), group.responses(), strict=True):
            p = plain_probabilities(model, group.prompt, response)
            for depth, node in enumerate(path):
                kept, tokens = p[depth].topk(6)
                kept = kept / kept.sum()
                nucleus = int((kept.cumsum(0) - kept < 0.7).sum())
                assert response[depth] in tokens[:nucleus]
                expected = kept[tokens.tolist().index(response[depth])] / kept[:nucleus].sum()
                assert group.logprobs[node] == pytest.approx(expected.log().item(), abs=1e-5)


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])  # untied and tied
def test_loaded_weights_are_the_ones_sampled_from(architecture: str) -> None:
    model, other = tiny_model(architecture), tiny_model(architecture, seed=1)
    sampling = Sampling(max_new_tokens=6, stop_token_ids=STOPS)
    engine = LocalEngine(model, policy_version=3)
    before = dict(engine.sample(requests(), sampling))
    assert before[0].policy_version == 3
    engine.load_weights(other.state_dict(), 4)
    assert engine.policy_version == 4
    after = dict(engine.sample(requests(), sampling))
    assert after[0].policy_version == 4
    for i, expected in enumerate(sampled(other, requests(), sampling)):
        assert_same(after[i], expected, 1e-6)
        assert not np.array_equal(after[i].tokens, before[i].tokens)
    head, embedding = head_of(model), embedding_of(model)
    assert (head is embedding) == (architecture == "qwen2")
    assert embedding.data_ptr() == embedding_of(other).data_ptr()  # no copy was made
    with torch.no_grad():
        head.mul_(0.5)  # a learner's step on a shared model is seen, through tied weights also
    engine.load_weights(model.state_dict(), 5)
    for i, expected in enumerate(sampled(model, requests(), sampling)):
        assert_same(dict(engine.sample(requests(), sampling))[i], expected, 1e-6)
        assert not np.array_equal(expected.tokens, after[i].tokens)


def test_own_weights_stay_the_same_parameters() -> None:
    model = tiny_model("qwen2")
    parameters = {name: id(parameter) for name, parameter in model.named_parameters()}
    LocalEngine(model).load_weights(model.state_dict(), 1)
    assert parameters == {name: id(parameter) for name, parameter in model.named_parameters()}


def test_tied_weights_may_be_missing() -> None:
    model, other = tiny_model("qwen2"), tiny_model("qwen2", seed=1)
    weights = other.state_dict()
    del weights["lm_head.weight"]
    LocalEngine(model).load_weights(weights, 1)
    assert torch.equal(head_of(model), embedding_of(other))


def test_wrong_weights_are_refused_and_nothing_is_loaded() -> None:
    model = tiny_model("llama")
    engine = LocalEngine(model)
    saved = copy.deepcopy(model.state_dict())
    good = tiny_model("llama", seed=1).state_dict()
    with pytest.raises(ModelError, match=r"1 missing \(lm_head.weight\), 1 unknown \(head\)"):
        engine.load_weights({"head" if k == "lm_head.weight" else k: v for k, v in good.items()}, 1)
    with pytest.raises(ModelError, match="shape"):
        engine.load_weights({**good, "lm_head.weight": good["lm_head.weight"][:5]}, 1)
    assert engine.policy_version == 0
    assert all(torch.equal(saved[k], v) for k, v in model.state_dict().items())


def test_new_weights_in_the_middle_of_sampling_are_an_error() -> None:
    model = tiny_model("llama")
    engine = LocalEngine(model, kv_budget_mib=0.01)
    groups = engine.sample(requests(), Sampling(max_new_tokens=6, stop_token_ids=STOPS))
    next(groups)
    engine.load_weights(model.state_dict(), 1)
    with pytest.raises(RuntimeError, match="new weights"):
        list(groups)


def test_the_model_is_left_as_it_was_even_between_groups() -> None:
    model = tiny_model("gemma3").train()
    implementation = model.config._attn_implementation
    engine = LocalEngine(model, kv_budget_mib=0.01)
    groups = engine.sample(requests(), Sampling(max_new_tokens=6, stop_token_ids=STOPS))
    for _ in groups:
        assert model.training
        assert not torch.is_inference_mode_enabled()
        assert model.config._attn_implementation == implementation
        model(torch.tensor([[3, 4, 5]])).logits.sum().backward()  # a learner may work between groups


def test_other_architectures() -> None:
    shape: dict[str, Any] = {"vocab_size": 48, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    torch.manual_seed(0)
    granite = GraniteForCausalLM(
        GraniteConfig(**shape, intermediate_size=64, num_key_value_heads=2, logits_scaling=4.0, pad_token_id=0)
    ).eval()
    gpt2 = GPT2LMHeadModel(GPT2Config(vocab_size=48, n_embd=32, n_layer=2, n_head=4, n_positions=64)).eval()
    for model in (granite, gpt2):
        for group in sampled(model, requests(8), Sampling(max_new_tokens=5, stop_token_ids=STOPS)):
            for logprob, response in zip(group.response_logprobs(), group.responses(), strict=True):
                p = plain_probabilities(model, group.prompt, response)
                assert logprob == pytest.approx(logprobs_of(p, response).sum(), abs=1e-4)


def test_attention_that_the_engine_cannot_compute_is_refused() -> None:
    shape: dict[str, Any] = {"vocab_size": 48, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = Gemma2ForCausalLM(Gemma2Config(**shape, head_dim=8, intermediate_size=64, num_key_value_heads=2)).eval()
    with pytest.raises(ModelError, match="softcapping"):
        LocalEngine(model)
    llama = tiny_model("llama")
    llama.model.layers[1].self_attn.forward = lambda hidden_states, **_: (hidden_states, None)  # type: ignore[method-assign, union-attr]
    llama.model.layers[0].self_attn.forward = lambda hidden_states, **_: (hidden_states.cumsum(1), None)  # type: ignore[method-assign, union-attr]
    with pytest.raises(ModelError, match="AttentionInterface"):
        LocalEngine(llama)
    partly = tiny_model("llama")
    partly.model.layers[1].self_attn.forward = lambda hidden_states, **_: (hidden_states.cumsum(1), None)  # type: ignore[method-assign, union-attr]
    with pytest.raises(ModelError, match="differ"):
        LocalEngine(partly)


def test_requests_that_make_no_sense_are_refused_at_once() -> None:
    engine = LocalEngine(tiny_model("llama"))
    [prompt] = prompts((250,))
    good = Sampling(max_new_tokens=6, stop_token_ids=STOPS)

    def ask(prompt: Prompt = prompt, rollouts: int = 4, sampling: Sampling = good) -> None:
        engine.sample([SampleRequest(prompt=prompt, rollouts=rollouts, key=(0,))], sampling)

    ask()
    with pytest.raises(DataError, match="p0 has 250 tokens; with 7 new"):
        ask(sampling=Sampling(max_new_tokens=7, stop_token_ids=STOPS))
    with pytest.raises(DataError, match="no tokens"):
        ask(Prompt(id="empty", text=""))
    with pytest.raises(ValueError, match="0 rollouts"):
        ask(rollouts=0)
    for bad in ({"max_new_tokens": 0}, {"temperature": 0.0}, {"top_p": 0.0}, {"top_k": -1}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            ask(sampling=Sampling(**{"max_new_tokens": 6, "stop_token_ids": STOPS, **bad}))


def test_a_model_gone_bad_is_named() -> None:
    model = tiny_model("llama")
    engine = LocalEngine(model)
    with torch.no_grad():
        head_of(model)[7] = torch.nan
    with pytest.raises(RunError, match="not finite"):
        list(engine.sample(requests(), Sampling(max_new_tokens=6, stop_token_ids=STOPS)))


def test_no_requests_give_no_groups() -> None:
    assert sampled(tiny_model("llama"), [], Sampling(max_new_tokens=3, stop_token_ids=())) == []


def test_stop_tokens_come_from_everywhere() -> None:
    model, tokenizer = tiny_model("llama"), character_tokenizer()
    assert stop_token_ids(model, tokenizer) == (2,)
    model.generation_config = GenerationConfig(eos_token_id=[7, 2])
    model.config.eos_token_id = 9
    assert stop_token_ids(model, tokenizer) == (2, 7, 9)
    model.config.eos_token_id = None
    model.generation_config = GenerationConfig()
    tokenizer.eos_token = None
    with pytest.raises(ModelError, match="end-of-sequence"):
        stop_token_ids(model, tokenizer)
