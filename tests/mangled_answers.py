"""Answers for fuzzing: real ones mutated, hostile ones, and junk."""

from collections.abc import Iterator

import numpy as np

# ruff: noqa: RUF001 - confusable characters are wanted

_PIECES = r"""
    \frac \frac{1}{2} \sqrt \sqrt[3] { } ( ) [ ] \{ \} | ^ _ ^{ _{ ! % \% \$ $ & \\ \left \right \text{ \text{cm} \pm
    \cup \in = < \le , ; : / * \cdot + - 1 9 0 12 999999999 1e999 .5 0.1 x y e i \pi \infty \sin \log \begin{pmatrix}
    \end{pmatrix} \sum_{k=1}^n and or \boxed{ ² ½ − ∞ √ π ３ ° 𝟙 ٣ ^{9^{9^{9}}} !!!!!! \binom{9}{4} \overline{3} ' "
    \circ \lfloor \rfloor \forall \mathbb{R} ~ `
"""
PIECES = (*_PIECES.split(), "\u200b", "\x00", "\n", "\t", r"\text{ cm}")
HOSTILE = (
    "9^{9^{9^{9}}}",
    r"\dfrac{3^{(3^{(3^{(3^3)})}-2)}-1}{8}",
    "9!!!!!!!!",
    "((((9!)!)!)!)!",
    "4999!",
    "5001!",
    r"\binom{10^{9}}{10^{8}}",
    r"\sqrt[10^{9}]{2}",
    r"\sqrt{2}^{10^{8}}",
    "e^{e^{e^{e^{9}}}}",
    "i^{i^{i^{i}}}",
    r"\sin(10^{10^{10}})",
    r"\sin(10^{3999})",
    r"\lfloor 10^{3999}\pi \rfloor",
    "1e3999^{1e3999}",
    "1e-3999",
    "0.1^{-60000}",
    "2^{-10^{12}}",
    r"2^{2^{2^{2^{2}}}}\text{ cm}",
    "x^{x^{x^{x^{x^x}}}}",
    "(x+y+z)^{3000}",
    "+".join(f"x_{{{k}}}^{k}" for k in range(150)),
    r"\log_{1}{5}",
    "0^0",
    "0^{-1}",
    r"\frac{0}{0}",
    r"\frac{1}{1500!}",
    "(" * 900 + "1" + ")" * 900,
    "{" * 900 + "1" + "}" * 900,
    r"\frac{" * 300 + "1",
    r"\sqrt" * 400 + "2",
    r"\sin" * 500 + " 1",
    r"\ln" * 80 + "(2)",
    r"\pm" * 60 + "1",
    ",".join([r"\pm 1"] * 190),
    "1" * 1999,
    "0." + "3" * 1900,
    "9^" * 700 + "9",
    "-" * 1900,
    "|" * 900,
    "x^{" * 300,
    r"\text{" * 200,
    r"\sum" * 300,
    r"\begin{pmatrix}" + "&".join(["1"] * 390) + r"\end{pmatrix}",
    *(mark * 500 for mark in ("1,", "1:", "1=", "1<", r"\{", "\\", "_", "^", r"\cup", "a")),
)


def mangled(rng: np.random.Generator, golds: list[str], size: int) -> Iterator[str]:
    """`size` texts: mutated golds for the most part, then strings of pieces, hostile formulas, random characters."""
    for _ in range(size):
        kind = rng.random()
        if kind < 0.6:
            yield _mutated(rng, str(golds[rng.integers(len(golds))]))
        elif kind < 0.85:
            yield "".join(PIECES[i] for i in rng.integers(len(PIECES), size=rng.integers(1, 40)))
        elif kind < 0.9:
            yield _mutated(rng, HOSTILE[rng.integers(len(HOSTILE))])
        else:
            points = rng.integers(1, 0x2FFF, size=rng.integers(1, 60))
            yield "".join(chr(point) for point in points)


def _mutated(rng: np.random.Generator, text: str) -> str:
    for _ in range(rng.integers(0, 5)):
        at, to = sorted(rng.integers(0, len(text) + 1, size=2))
        action = rng.integers(4)
        if action == 0:
            text = text[:at] + PIECES[rng.integers(len(PIECES))] + text[at:]
        elif action == 1:
            text = text[:at] + text[to:]
        elif action == 2:
            text = text[:to] + text[at:to] + text[to:]
        else:
            text = text[:at] + text[at:to][::-1] + text[to:]
        text = text[:3000]
    return text
