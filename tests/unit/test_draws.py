"""Counter-based draws: uniform, keyed by the node, and exactly the categorical distribution they claim."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from brorl.engines.draws import child_hashes, draw, uniforms
from brorl.engines.protocol import Sampling
from brorl.errors import RunError

PLAIN = Sampling(max_new_tokens=1, stop_token_ids=())


def hashes(rows: int, start: int = 7) -> np.ndarray:
    return child_hashes(np.full(rows, start, np.uint64), np.arange(rows))


def test_uniforms_are_uniform_and_do_not_depend_on_the_batch() -> None:
    names = hashes(1000)
    counts = np.arange(1, 1001)
    values = uniforms(names, counts)
    assert values.min() >= 0
    assert values.max() < 1
    observed = np.histogram(values, bins=64, range=(0, 1))[0]
    expected = len(values) / 64
    statistic = ((observed - expected) ** 2 / expected).sum()
    assert statistic < 63 + 4 * np.sqrt(2 * 63)
    assert len(np.unique(values)) == len(values)
    starts = np.cumsum(counts) - counts
    for row in (0, 1, 500, 999):
        alone = uniforms(names[row : row + 1], counts[row : row + 1])
        assert np.array_equal(alone, values[starts[row] : starts[row] + counts[row]])


def test_first_draws_of_neighbouring_nodes_are_uncorrelated() -> None:
    parents = uniforms(hashes(20_000, 1), np.ones(20_000, np.int64))
    siblings = uniforms(hashes(20_000, 2), np.ones(20_000, np.int64))
    children = uniforms(child_hashes(hashes(20_000, 1), np.zeros(20_000, np.int64)), np.ones(20_000, np.int64))
    for other in (siblings, children, np.roll(parents, 1)):
        assert abs(np.corrcoef(parents, other)[0, 1]) < 4 / np.sqrt(20_000)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 40),
    st.lists(st.integers(1, 60), min_size=1, max_size=6),
    st.sampled_from([torch.float32, torch.float64]),
    st.integers(0, 2**32),
    st.sampled_from([1.0, 0.6]),
)
def test_draw_is_inverse_cdf_of_its_uniforms(
    vocabulary: int, counts: list[int], dtype: torch.dtype, seed: int, temperature: float
) -> None:
    rng = np.random.default_rng(seed)
    logits = torch.from_numpy(rng.normal(0, 3, (len(counts), vocabulary))).to(dtype)
    names = rng.integers(0, 2**63, len(counts)).astype(np.uint64)
    sizes = np.array(counts)
    draws = draw(logits.clone(), sizes, names, Sampling(max_new_tokens=1, stop_token_ids=(), temperature=temperature))
    p = torch.softmax(logits / temperature, -1).double().numpy()
    for row, count in enumerate(counts):
        tokens = np.searchsorted(
            np.cumsum(p[row]) / p[row].sum(), uniforms(names[row : row + 1], sizes[row : row + 1]), side="right"
        )
        expected, expected_counts = np.unique(tokens, return_counts=True)
        mine = draws.rows == row
        assert np.array_equal(draws.tokens[mine], expected)
        assert np.array_equal(draws.counts[mine], expected_counts)
        assert draws.counts[mine].sum() == count
        left_out = np.delete(p[row], expected)
        np.testing.assert_allclose(draws.undrawn2[row], (left_out**2).sum(), rtol=1e-5)
        np.testing.assert_allclose(draws.logprobs[mine], np.log(p[row, expected]), rtol=0, atol=2e-6)


def test_undrawn2_keeps_its_digits_where_a_difference_would_cancel() -> None:
    logits = torch.tensor([[0.0, -18.0, -19.0]])
    draws = draw(logits, np.array([8]), hashes(1), PLAIN)
    assert draws.tokens.tolist() == [0]
    p = torch.softmax(logits.double(), -1)[0]
    np.testing.assert_allclose(draws.undrawn2[0], float((p[1:] ** 2).sum()), rtol=1e-5)


def test_impossible_tokens_are_never_drawn() -> None:
    logits = torch.full((3, 1000), -torch.inf)
    logits[:, [0, 500, 999]] = 0.0
    draws = draw(logits, np.full(3, 5000), hashes(3), PLAIN)
    assert set(draws.tokens.tolist()) == {0, 500, 999}


def test_many_rows_are_cut_into_chunks_without_a_trace() -> None:
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(5000, 400, generator=generator)
    counts = np.random.default_rng(0).integers(1, 5, 5000)
    names = hashes(5000)
    whole = draw(logits, counts, names, PLAIN)
    assert (np.diff(whole.rows) >= 0).all()
    assert np.array_equal(np.bincount(whole.rows, weights=whole.counts), counts)
    half = draw(logits[2500:], counts[2500:], names[2500:], PLAIN, first_row=2500)
    later = whole.rows >= 2500
    assert np.array_equal(whole.rows[later], half.rows)
    assert np.array_equal(whole.tokens[later], half.tokens)


def test_top_k_and_top_p_filter_and_renormalise() -> None:
    p = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
    logits = p.log()[None]

    def drawn(top_k: int = 0, top_p: float = 1.0) -> dict[int, float]:
        sampling = Sampling(max_new_tokens=1, stop_token_ids=(), top_k=top_k, top_p=top_p)
        draws = draw(logits.clone(), np.array([4000]), hashes(1), sampling)
        assert draws.undrawn2[0] == 0
        return dict(zip(draws.tokens.tolist(), np.exp(draws.logprobs), strict=True))

    assert drawn() == pytest.approx({0: 0.4, 1: 0.3, 2: 0.2, 3: 0.1})
    assert drawn(top_k=2) == pytest.approx({0: 4 / 7, 1: 3 / 7})
    assert drawn(top_p=0.65) == pytest.approx({0: 4 / 7, 1: 3 / 7})
    assert drawn(top_p=0.75) == pytest.approx({0: 4 / 9, 1: 3 / 9, 2: 2 / 9})
    assert drawn(top_p=1e-9) == pytest.approx({0: 1.0})
    # top-p is taken of what top-k leaves: 4/7 of the mass is already in the first token.
    assert drawn(top_k=2, top_p=0.5) == pytest.approx({0: 1.0})


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_logits_that_are_not_numbers_are_refused(bad: float) -> None:
    logits = torch.zeros(2, 5)
    logits[1, 3] = bad
    with pytest.raises(RunError, match="not finite"):
        draw(logits, np.array([1, 1]), hashes(2), PLAIN)
