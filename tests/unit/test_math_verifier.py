"""The math verifier: the extraction rule, equal and unequal answers, outcomes, modes."""

import math as arithmetic

import pytest

from brorl.errors import DataError
from brorl.group import Outcome, Prompt
from brorl.verifiers.math import math
from brorl.verifiers.mathematics.extraction import Found, extract
from brorl.verifiers.mathematics.reading import read, same_reading
from shared_data import cases


def prompt(answer: str, **meta: object) -> Prompt:
    return Prompt(id="p", text="", answer=answer, verifier="math", meta=meta)


def test_every_handed_case() -> None:
    wanted = {
        "correct": {Outcome.CORRECT},
        "incorrect": {Outcome.WRONG, Outcome.NO_ANSWER, Outcome.TRUNCATED},
        "timeout-safe incorrect": {Outcome.WRONG},
        "unscorable": {Outcome.UNSCORABLE},
    }
    rows = cases("math")
    assert len(rows) == 89
    for row in rows:
        score = math(prompt(row["gold"] or ""), row["input"] or "")
        assert score.outcome in wanted[row["expect"]], row
        if score.outcome is not Outcome.UNSCORABLE:
            assert score.reward == float(row["expect"] == "correct")


# -- where the answer is


@pytest.mark.parametrize(
    ("response", "found", "text"),
    [
        (r"a \boxed{1} b \boxed{2} c", Found.BOX, "2"),
        (r"\boxed{\frac{1}{2}}", Found.BOX, r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", Found.BOX, r"\{1, 2\}"),
        (r"\boxed 5 is it", Found.BOX, "5"),
        (r"Answer: 3 but \boxed{4}", Found.BOX, "4"),
        (r"\boxed{1} and \boxed{2", Found.OPEN_BOX, "2"),
        (r"\boxed", Found.OPEN_BOX, ""),
        (r"\boxed{}", Found.EMPTY, ""),
        (r"\boxed{  }", Found.EMPTY, ""),
        ("<think>\\boxed{1}</think> \\boxed{2}", Found.BOX, "2"),
        ("<think>\\boxed{1}</think>#### 2", Found.ANCHOR, "2"),
        ("<think>\\boxed{1}", Found.OPEN_THINKING, ""),
        ("<think>a</think> 1 <think> 2", Found.OPEN_THINKING, ""),
        ("#### 5", Found.ANCHOR, "5"),
        ("####5\ntext", Found.ANCHOR, "5"),
        ("Answer: 5\nAnswer: 6", Found.ANCHOR, "6"),
        ("**Answer:** 6", Found.ANCHOR, "6"),
        ("Answer: **6**", Found.ANCHOR, "6"),
        ("**Answer**: 6.", Found.ANCHOR, "6"),
        ("Final answer:\n\n12", Found.ANCHOR, "12"),
        ("Final Answer:\n\\[\nx = 3\n\\]\n", Found.ANCHOR, "x = 3"),
        ("The final answer is $28 \\%$. I hope it is correct.", Found.ANCHOR, "$28 \\%$"),
        ("So the answer is: 7", Found.ANCHOR, "7"),
        ("the answer is 4:30 p.m. I think", Found.ANCHOR, "4:30 p.m. I think"),
        ("Answer: Dr. Smith. He was late.", Found.ANCHOR, "Dr. Smith"),
        ("<answer> 9 </answer> bye", Found.ANCHOR, "9"),
        ("<answer>9", Found.ANCHOR, "9"),
        ("2 + 2 = 4\nA: 4", Found.ANCHOR, "4"),
        ("A. 4", Found.ANCHOR, "4"),
        ("Answer: 5<|im_end|>", Found.ANCHOR, "5"),
        ("Answer:", Found.EMPTY, ""),
        ("A triangle: 3", Found.WHOLE, "A triangle: 3"),
        ("42", Found.WHOLE, "42"),
    ],
)
def test_extraction(response: str, found: Found, text: str) -> None:
    assert extract(response)[:2] == (found, text)


def test_a_thinking_block_that_the_prompt_opened_must_be_closed() -> None:
    assert extract(r"hm \boxed{1}", prompt="Question\n<think>\n").found is Found.OPEN_THINKING
    assert extract(r"hm</think>\boxed{1}", prompt="Question\n<think>\n").text == "1"


@pytest.mark.parametrize(
    ("response", "outcome"),
    [
        (r"\boxed{5}", Outcome.CORRECT),
        ("5", Outcome.CORRECT),
        ("$5$", Outcome.CORRECT),
        (r"\boxed{6}", Outcome.WRONG),
        ("6", Outcome.WRONG),
        ("it is 5", Outcome.NO_ANSWER),
        ("I get 5.", Outcome.NO_ANSWER),
        ("", Outcome.NO_ANSWER),
        (r"\boxed{}", Outcome.NO_ANSWER),
        (r"\boxed{5", Outcome.TRUNCATED),
        ("Answer: 5 or 6", Outcome.WRONG),
        ("Answer: 5 is wrong", Outcome.WRONG),
    ],
)
def test_outcomes(response: str, outcome: Outcome) -> None:
    score = math(prompt("5"), response)
    assert score.outcome is outcome
    assert score.reward == float(outcome is Outcome.CORRECT)


@pytest.mark.parametrize("gold", ["", "  ", "$$", r"\boxed{}", r"\boxed{5"])
def test_a_reference_without_content_is_unscorable(gold: str) -> None:
    score = math(prompt(gold), r"\boxed{5}")
    assert score.outcome is Outcome.UNSCORABLE
    assert arithmetic.isnan(score.reward)


def test_a_reference_may_be_a_worked_solution() -> None:
    assert math(prompt(r"We find $x = \boxed{3}$."), r"\boxed{3}").reward == 1
    assert math(prompt(r"\(\boxed{1}\) and \(\boxed{-2}\)."), r"\boxed{-2, 1}").reward == 1
    assert math(prompt("Half of 12 is 6.\nSo she has 6 + 1 = 7.\n#### 7"), "#### 7").reward == 1


def test_a_text_answer_may_be_the_whole_response() -> None:
    assert math(prompt(r"\text{Evelyn}"), "Evelyn").outcome is Outcome.CORRECT
    assert math(prompt(r"\text{Evelyn}"), "Evelyn or Ann").outcome is Outcome.NO_ANSWER


def test_the_unit_of_a_reference_can_be_declared() -> None:
    for answer, reward in (("45", 1), (r"45\%", 1), ("0.45", 1), ("45 cm", 0), ("4500", 0)):
        assert math(prompt("45", unit="%"), rf"\boxed{{{answer}}}").reward == reward
    for answer, reward in (("45", 1), ("45 cm", 1), ("0.45 m", 1), (r"45\text{ m}", 0)):
        assert math(prompt("45", unit="cm"), rf"\boxed{{{answer}}}").reward == reward


def test_a_declared_unit_that_makes_no_sense_is_left_out() -> None:
    assert math(prompt("45", unit="?{}!"), r"\boxed{45}").reward == 1
    assert math(prompt(r"8 \%", unit="%"), r"\boxed{8\%}").reward == 1


def test_an_unknown_mode_is_the_users_error() -> None:
    with pytest.raises(DataError, match="'strict' and 'lenient'"):
        math(prompt("5", mode="loose"), r"\boxed{6}")


# -- which answers are equal

EQUAL = r"""
1,000 | 1000
10,000 | 10{,}000
10 000 | 10000
10\,000 | 10000
14,\!400 | 14400
11,\! 111,\! 111,\! 100 | 11111111100
1{,}000{,}000 | 10^6
\frac{1}{2} | 0.5
\frac12 | \dfrac{1}{2}
\frac{-1}{2} | -\frac12
2\sqrt{3} | \sqrt{12}
\sqrt[3]{8} | 2
\sqrt2 + \sqrt 3 | \sqrt{5+2\sqrt{6}}
\frac{\sqrt{2}}{2} | \frac{1}{\sqrt{2}}
x=5 | 5
C = 5 | 5
f(x)=x^2 | x^2
x = \frac{4}{2} = 2 | 2
|AB| = 5 | 5
\frac{AC}{BD} = \frac{2}{3} | 2/3
\{1,2\} | 2, 1
\{1\} | 1
(1,2] | 1<x\le2
1 < x < 5 | (1,5)
x > 1 \text{ and } x < 5 | (1,5)
x<-1 \text{ or } x>2 | (-\infty,-1)\cup(2,\infty)
(-\infty, 3) \cup (3,\infty) | x\neq 3
\mathbb{R}\setminus\{3\} | x \ne 3
\mathbb{R} | (-\infty,\infty)
[1,3] \cup [2,5] | [1,5]
[1,2) \cup \{2\} | [1,2]
\{x \mid x > 3\} | x>3
x\in\{1,2\} | \{1, 2\}
2 \ge x | (-\infty, 2]
50\% | \frac12
50 percent | 50\%
12\text{ cm} | 12 cm
12 \text{ cm} | 12
12\text{ m} | 12 m
1 \text{ m} | 100 \text{ cm}
5 \text{ km/h} | 5 \text{ kilometers per hour}
10\text{ mph} | 10 \text{ miles per hour}
3 \text{ m}^2 | 3 \text{ square meters}
25 \text{ square inches} | 25\text{ in}^2
36\sqrt{7}cm^{3} | 36\sqrt{7}
480 + 480\sqrt{3}\text{ feet} | 480 + 480\sqrt{3}
65 \text{ children tickets } | 65 \text{ tickets}
7\text{ days} | 1\text{ week}
\$5.50 | 5.50 dollars
$45 | 45
\$1,234.50 | 1234.5
-\$0.50 | -0.50
80\text{ cents} | \$0.80
90^\circ | \frac{\pi}{2}
90^\circ | 90
90 degrees | 90^{\circ}
25^\circ\text{C} | 25 \text{ degrees Celsius}
45^\circ, 135^\circ | 135, 45
\tan 45^\circ | 1
\sin^2 x+\cos^2 x | 1
\sin^{-1} 1 | \frac{\pi}{2}
(x-1)(x+1) | x^2 - 1
\frac{x^2-1}{x-1} | x+1
x^4-16 | (x^2+4)(x+2)(x-2)
\frac{n(n+1)(2n+1)}{6} | \frac{2n^3+3n^2+n}{6}
\frac{1}{x}+\frac1y | \frac{x+y}{xy}
\ln(ab) | \ln a+\ln b
e^{2\ln x} | x^2
e^{i\pi} | -1
\log_2 8 | 3
\binom{5}{2} | 10
\frac{9!}{3!} | 60480
3+4i | 4i+3
\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix} | \begin{bmatrix} 1 & 2\\3&4\end{bmatrix}
\begin{pmatrix}1\\2\end{pmatrix} | (1,2)
\begin{pmatrix}1\\2\end{pmatrix} + \begin{pmatrix}1\\1\end{pmatrix} | \begin{pmatrix}2\\3\end{pmatrix}
\frac12\begin{pmatrix}2\\4\end{pmatrix} | \begin{pmatrix}1\\2\end{pmatrix}
\left(\frac{1}{2}, 3\right) | (0.5, 3)
(1, 2, 3) | 1, 2, 3
1\frac{1}{2} | 1.5
1 1/2 | \frac32
-15\frac{3}{5} | -15.6
1.5\times 10^3 | 1500
1.5 \cdot 10^{-3} | 0.0015
7.5e7 | 7.5 \times 10^{7}
-1./3 | -\frac13
6.02e23 | 6.0200001 \times 10^{23}
x^2+y^2=4 | y^2 + x^2 = 4
2x+4y=6 | x+2y=3
x^2/4 + y^2/3 = 1 | x^2/16 + y^2/12 = 1/4
s^2 \le 8r^2 | 8r^2 \geq s^2
f(2) < f(1) < f(4) | f(4) > f(1) > f(2)
\text{yes} | Yes
No. | \text{no}
\text{a necessary but not a sufficient condition} | necessary but not sufficient condition
(\text{E}) | E
\textbf{(C)} | \text{C}
\text{A,D} | D, A
0.\overline{6} | \frac23
0.1\overline{6} | \frac16
\pm 3 | 3, -3
3 \pm 2 \sqrt{2} | 3+2\sqrt2, 3 - 2\sqrt{2}
\{1\pm\sqrt{5},-2\} | -2, 1-\sqrt5, 1+\sqrt5
x = \pm 2 | -2 \text{ and } 2
k=2,3,4 | 4, 3, 2
7, -2, \text{ and } -5 | -5, -2, 7
x=1, y=2 | (1,2)
(p,q)=(3,2) | (3,2)
p=5,q=2;p=7,q=2 | (7,2),(5,2)
a_3 = 2, a_{37} = 19 | a_{37} = 19, \quad a_3 = 2
3 : 4 | 6:8
3:4 | \frac34
V_{1}:V_{2}=11:21 | 11:21
10101_2 | 10101_{2}
-221_3 | -221
\text{A5}_{11} | A5_{11}
\lfloor n/2 \rfloor + 1 | 1 + \lfloor \frac{n}{2} \rfloor
\lceil n / 2\rceil | \lfloor (n+1)/2 \rfloor
4:30\text{ p.m.} | 4:30 PM
\$\dfrac23 \approx \$0.67 | 0.67
\$\dfrac23 \approx \$0.67 | \frac23
\approx 8.24 \text{ mph} | 8.24
0.56 = 56\% | 0.56
\mathbf{2340} | 2340
2^{n-1} | \frac{2^n}{2}
\sum_{k=0}^{n} a_k b_k | \sum_{k=0}^{n} b_k a_k
9^{9^{9}} | 9^{9^9}
\frac{1}{2004!} | 1/2004!
np.arcsin(10/13) | \arcsin\frac{10}{13}
I \frac{d \omega}{d t}+2 B \omega=T | T = 2B\omega + I\frac{d\omega}{dt}
3x² | 3x^{2}
30\% \text{ of students} | 30\%
(0, 1) \cup (1, \infty) | x>0, x \neq 1
k \in \mathbb{Z} | k\in\mathbb Z
9.8\text{ m s}^{-2} | 9.8 m/s^2
y-1 = 2(x-3) | y = 2x-5
a=1, b=2 | b=2, a=1
S_{\triangle ABC} = 6 | 6
V = 36\pi \text{ cm}^3 | 36\pi
\left[\begin{array}{c}1\\2\end{array}\right] | \begin{bmatrix}1\\2\end{bmatrix}
x = \frac{\pi}{4} + k\pi, k \in \mathbb{Z} | x = k\pi + \frac{\pi}{4}, k \in \mathbb{Z}
1.5 \text{ million} | 1500000
1.5 million | 1{,}500{,}000
\$1.8\text{ billion} | 1.8 billion dollars
2 million people | 2,000,000
33\frac{1}{3}\% | \frac13
12 1/2 % | 0.125
\text{four} | 4
12^{\text{th}} | 12
12th | 12
\begin{cases} x=1 \\ y=2 \end{cases} | x=1, y=2
\|v\| | |v|
x_1=3, x_2=2 | 2, 3
f(n)=n^2 | f(x)=x^2
6\pi \approx 18.85 | 18.85
41.6 \approx 42 | 41.6
x = 41.6 \approx 42 | 41.6
x \approx 42 | 42
2|x|\,|y| | 2|xy|
sqrt(2)/2 | \frac{\sqrt2}{2}
3^(1/2) | \sqrt{3}
2^{-1} | 0.5
5\,\mathrm{cm} | 5~\text{cm}
\text{5 cm} | 5 cm
5 \text{ (units)} | 5 (units)
$x=1$ or $x=2$ | 1, 2
√2 | \sqrt{2}
2π | 2\pi
x ≤ 3 | x\leq3
5,\,-11 | -11, 5
\\left(\\frac{1}{5},\\frac{1}{6}\\right) | \left(\frac15, \frac16\right)
"""

UNEQUAL = r"""
3 | -3
x | y
a | A
x>3 | x\ge 3
x>3 | x<3
x>3 | y>3
(1,2) | [1,2]
(1,2) | (1,2]
(1,2,3) | (1,2)
(3, 4) | 3, 4
(5,2) | (2,5)
(-\infty,2)\cup(2,\infty) | \mathbb{R}
1,2 | 1
1,2 | 1,2,3
1,1,2 | 1,2
\{1,2\} | \{1,3\}
\{1,2,3\} | (1,2,3)
\frac{1}{3} | 0.33
1/3 | 0.3333333
\pi | 3.14159265358979
\sqrt{2} | 1.41421356
0.0000001 | 0.0000002
66.67 | 66.6667
50\% | 50
50\% | 5
50\% | 50\text{ cm}
5 \text{ km} | 5 \text{ miles}
3\text{ cm} | 3\text{ square cm}
5 \text{ apples} | 5 \text{ oranges}
\$5 | 5 \text{ cents}
25^\circ\text{C} | 25^\circ\text{F}
90^\circ | 90\text{ rad}
\cos 58^\circ | \cos 58
10_2 | 10_3
10_2 | 2
1 \text{ hour} | 1 \text{ minute}
x=5 | y=5
2x=4 | 4
x+y=3 | 3
2x + z = 1 | 1
x = 5+5+1 = 7 = 11 | 11
|x| | x
\sin x | \cos x
\ln x | \log x
x+C | x
-x | x
(x-1)^2 | x^2-1
\text{Yes} | No
AB | ab
10:30 | 10:31
12:00 | 1:00
4:30 AM | 4:30 PM
3:4 | 4:3
\begin{pmatrix}1&2\\3&4\end{pmatrix} | \begin{pmatrix}1&3\\2&4\end{pmatrix}
\begin{pmatrix}1\\2\end{pmatrix} | \begin{pmatrix}1&2\end{pmatrix}
2^{100} | 2^{100}+1
1000! | 1001!
e^{\pi\sqrt{163}} | 262537412640768744
10^{-50} | 10^{-51}
\pi + 10^{-60} | \pi
\sqrt{10^{80}+1} | 10^{40}
\sin(10^{-50}) | 0
42 | 42 or 43
42 | 42, 42
5 | 5 is wrong
5 | 5 \text{ is not the answer}
5 | \text{not } 5
5 | \neg 5
7\sqrt{3} | 7
\infty | -\infty
f(2)<f(1) | f(3)<f(2)
f(x) | f(y)
I(0) | 0
\forall x, x=1 | x=1
12,5 | 12.5
1,234 | 1.234
\frac{1}{0} | \frac{2}{0}
0/0 | 1
1 2 | 12
x=1, y=2 | x=2, y=1
x=1,y=2 | (2,1)
9^{9^{9}} | 9^{9^{8}}
9^{9^{9^9}} | 9
2/3 \approx 5 | 5
\frac{2}{3} \approx 0.7 | 0.6
1e3 | 1e4
3e | 3
2e3 | 2e^3
1+i | 1-i
a=1, b=2 | 2, 1
a=1, b=2 | a=2, b=1
3\text{ hours }20\text{ minutes} | 3
45^\circ 30' | 45^\circ
\begin{cases}1 & x>0 \\ 0 & x\le0\end{cases} | 1
3,4,5,\ldots | 3,4,5
x>0, x \neq 1 | x>0
1.5 \text{ million} | 1.5
1.5 \text{ million} | 1.5 \text{ billion}
x_1=3, x_2=2 | x_1=2, x_2=3
f(n)=n^2 | g(n)=n^2
f(x)=ax | f(a)=xa^2
\lfloor\sqrt{n-1}\rfloor | \lfloor\sqrt{n-2}\rfloor
45\text{ units}^2 | 45\text{ units}^3
6\pi \approx 18.85 | 18.84
41.6 \approx 42 | 42
1,000 | 1,0
1,000 | 1,00
12,050 | 12, 50
x = 41.6 \approx 42 | 42
12.345 \approx 12.35 | 12.35
\frac{100}{3} \approx 33 | 33
2.5\text{ cm} \approx 3\text{ cm} | 3
5 \pmod{7} | 5 \pmod{8}
"""


def pairs(table: str) -> list[tuple[str, str]]:
    rows = [line.rsplit(" | ", 1) for line in table.strip().split("\n")]
    return [(first, second) for first, second in rows]


@pytest.mark.parametrize(("first", "second"), pairs(EQUAL))
def test_equal_answers(first: str, second: str) -> None:
    assert same_reading(read(first), read(second))
    assert same_reading(read(second), read(first))


@pytest.mark.parametrize(("first", "second"), pairs(UNEQUAL))
def test_unequal_answers(first: str, second: str) -> None:
    assert not same_reading(read(first), read(second))
    assert not same_reading(read(second), read(first))
