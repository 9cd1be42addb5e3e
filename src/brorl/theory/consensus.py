"""cons@k: is the answer that most of k samples give the right one?"""

import numpy as np
from numpy.typing import NDArray

from brorl.seeding import Key, generator

_DRAWS = 2000  # sets of k samples a problem: a standard error of at most 0.011 a problem, and far less over many


def consensus_at_k(
    counts: NDArray[np.integer], correct: NDArray[np.bool_], k: int, *, silent: int = 0, key: tuple[Key, ...] = ()
) -> float:
    """The chance that the majority answer of k of a problem's n samples is right (Wang et al. 2022, arXiv 2203.11171).

    Samples without an answer do not vote; where none votes the problem is missed. A tie is broken evenly. With k = n
    the value is exact; below it is the mean over random sets of k, drawn without replacement and keyed.

    Args:
        counts: i[A], samples that gave each of the A different answers.
        correct: bool[A].
        silent: samples without an answer.
        key: names the draws; the same key gives the same value.

    Raises:
        ValueError: k is not in 1..n.
    """
    sizes = np.append(np.asarray(counts, np.int64), silent)
    n = int(sizes.sum())
    if not 1 <= k <= n:
        raise ValueError(f"cons@k needs 1 <= k <= n: k = {k}, n = {n}")
    if len(sizes) == 1:
        return 0.0
    draws = sizes[None] if k == n else generator(*key, "consensus", k).multivariate_hypergeometric(
        sizes, k, size=_DRAWS, method="marginals"
    )  # fmt: skip
    votes = draws[:, :-1]
    most = votes.max(axis=1)
    leads = (votes == most[:, None]) & (most[:, None] > 0)
    share = (leads & correct[None]).sum(axis=1) / np.maximum(leads.sum(axis=1), 1)
    return float(share.mean())
