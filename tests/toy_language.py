"""A tiny random language whose every response and probability is known, and exact groups drawn from it."""

from dataclasses import dataclass, replace

import numpy as np

from brorl.group import Finish, Outcome, Prompt, RolloutGroup, ScoredGroup

EOS = 0


@dataclass(frozen=True, kw_only=True)
class ToyLanguage:
    """Next-token probabilities for every prefix; token 0 ends a response, `depth` tokens are the limit."""

    tables: dict[tuple[int, ...], np.ndarray]
    responses: list[tuple[int, ...]]
    p: np.ndarray
    correct: np.ndarray

    def group(self, counts: np.ndarray, prompt_id: str = "toy") -> ScoredGroup:
        """The scored group in which response r was drawn ``counts[r]`` times, log-probabilities in float64."""
        drawn = [(self.responses[r], int(c)) for r, c in enumerate(counts) if c]
        sequences = [list(response) for response, count in drawn for _ in range(count)]
        finish = [Finish.STOP if s[-1] == EOS else Finish.LENGTH for s in sequences]
        group = RolloutGroup.from_sequences(Prompt(id=prompt_id, text=""), sequences, finish=finish)
        prefixes = self.prefixes(group)
        logprobs = np.array([np.log(self.tables[p[:-1]][p[-1]]) for p in prefixes])
        undrawn2 = np.array([self._undrawn2(group, node, prefix) for node, prefix in enumerate([(), *prefixes], -1)])
        group = replace(group, logprobs=logprobs, undrawn2=undrawn2)
        index = {response: r for r, response in enumerate(self.responses)}
        right = np.array([self.correct[index[tuple(ids.tolist())]] for ids in group.responses()])
        outcomes = np.where(right, Outcome.CORRECT, Outcome.WRONG).astype(np.uint8)
        return ScoredGroup(group=group, rewards=right.astype(np.float32), outcomes=outcomes)

    def logprobs(self, group: RolloutGroup) -> np.ndarray:
        """f64[M], this language's log-probabilities at the nodes of any group."""
        return np.array([np.log(self.tables[p[:-1]][p[-1]]) for p in self.prefixes(group)])

    @staticmethod
    def prefixes(group: RolloutGroup) -> list[tuple[int, ...]]:
        prefixes: list[tuple[int, ...]] = []
        for token, parent in zip(group.tokens.tolist(), group.parents.tolist(), strict=True):
            prefixes.append((*(prefixes[parent] if parent >= 0 else ()), token))
        return prefixes

    def _undrawn2(self, group: RolloutGroup, node: int, prefix: tuple[int, ...]) -> float:
        if prefix not in self.tables:
            return 0.0
        drawn = group.tokens[group.parents == node]
        return float((np.delete(self.tables[prefix], drawn) ** 2).sum())


def toy_language(seed: int, *, vocabulary: int = 4, depth: int = 3, correct_share: float = 0.3) -> ToyLanguage:
    """A random language; about `correct_share` of its responses are correct, at least one and not all."""
    rng = np.random.default_rng(seed)
    tables: dict[tuple[int, ...], np.ndarray] = {}
    responses: list[tuple[int, ...]] = []
    weights: list[float] = []
    frontier: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
    while frontier:
        prefix, weight = frontier.pop()
        tables[prefix] = rng.dirichlet(np.full(vocabulary, 0.6))
        for token, probability in enumerate(tables[prefix].tolist()):
            response = (*prefix, token)
            if token == EOS or len(response) == depth:
                responses.append(response)
                weights.append(weight * probability)
            else:
                frontier.append((response, weight * probability))
    correct = rng.random(len(responses)) < correct_share
    correct[int(rng.integers(len(correct)))] = True
    correct[np.flatnonzero(correct)[-1] - 1] = False
    if not correct.any():
        correct[0] = True
    return ToyLanguage(tables=tables, responses=responses, p=np.array(weights), correct=correct)
