"""Multiple choice: one letter, from an anchored answer first, else one that stands alone; never one inside a word.

Options are lettered A, B, C ... in the order of ``meta["choices"]``, whatever the data set's own labels were
(``meta["labels"]``, such as 1 to 4); the reference answer may be a letter, a label, or the text of an option.
"""

import re
from collections.abc import Sequence
from string import ascii_uppercase

from brorl.group import Outcome, Prompt
from brorl.verifiers.mathematics.extraction import Found, Rule, extract
from brorl.verifiers.score import Score

_WRAPPED = re.compile(r"\\(?:text|textbf|mathrm|mathbf|boxed)\s*\{([^{}]*)\}")
# A letter on its own: not part of a word, a contraction, a formula or an abbreviation.
_LETTER = re.compile(r"(?<![\w'\\$^_=+*/&.-])(\(|\[|\*\*)?([A-Z])(?:\)|\]|\*\*)?(?![\w'^_=+*/&-]|\.\w)")
_START = re.compile(
    r"\W{0,9}(?:(?:option|choice|answer|letter)\s{1,3})?\W{0,9}([a-z]|\d{1,3})(?![\w'^_=+*/&-])([).:\]*,]{0,9})\s*(.*)",
    re.IGNORECASE | re.DOTALL,
)
_NEXT = re.compile(
    r"\W{0,4}(?:,|and|or|&|/)\s{0,3}(?:option\s{1,3})?[(\[*]{0,4}([A-Z])(?![\w'])"
    r"|[\s)(\]\[*,;|+\u2013?-]{1,6}(?:(?:to|or|maybe|perhaps|possibly)\s{1,3})?[(\[*]{0,4}([A-Z])(?![\w']|\s{1,3}[a-z])"
)
_DENIED = re.compile(
    r"(?:\b(?:not|neither|nor|never|except|but|than|instead of|unlike)|n't)\s{1,3}"
    r"(?:(?:option|choice)\s{1,3})?[(\[*]{0,4}$",
    re.IGNORECASE,
)
_LONGEST_LINE = 400
_HEDGE = re.compile(
    r"(?:and|or|nor|maybe|perhaps|possibly|probably|likely|no|not|wait|actually|hmm|then|vs|versus|plus|also|both|either"
    r"|option|choice|answer|letter|if|otherwise|else|unless|alternatively|second|guess|as|well|but|could|might|be|too"
    r"|instead|rather|than|sorry|lor|cup|land|wedge|vee|quad|\d+)\b",
    re.IGNORECASE,
)
_ANOTHER = re.compile(r"([A-Za-z])(?![\w'])")
_PROSE = re.compile(r"(?:[\s,&/()]|\b(?:and|or)\b|\b[A-Z]\b){0,30}\s(?!(?:and|or)\b)[a-z]{2}")
_REASON = re.compile(r"(?:because|since|as|for|by|with|is|due|which|given|from|based)\b|[^\w]|$", re.IGNORECASE)
_REJECTED = re.compile(
    r"\W{0,3}(?:\s{0,2}(?:,|and|or)\s{0,2}\(?[A-Z]\)?){0,9}\s{0,2}(?:is|are|was|can be|could be|must be)?\s{0,2}"
    r"(?:both |all |also |clearly |definitely )?"
    r"(?:not\b|wrong|incorrect|false|eliminated|ruled out|excluded|impossible"
    r"|isn't|aren't|can't|cannot|does not|doesn't)"
)
_ARTICLE = re.compile(r"\s+(?!(?:and|or)\s+\(?[A-Z]\b)[a-z]")
_NAMED = re.compile(r"\b(?:option|choice|letter)\s{1,3}$", re.IGNORECASE)


def choice(prompt: Prompt, response: str) -> Score:
    """1 if the response settles on the option of `prompt.answer`, else 0.

    ``meta["choices"]`` lists the options' texts and sets how many letters there are (A to D, or up to the reference
    letter, without it); ``meta["labels"]`` their labels in the data set.
    """
    choices = [str(option) for option in prompt.meta.get("choices") or ()]
    labels = [str(label) for label in prompt.meta.get("labels") or ()]
    gold = _reference(prompt.answer, choices, labels)
    if gold is None:
        return Score(
            outcome=Outcome.UNSCORABLE, reward=float("nan"), note="the reference answer is none of the options"
        )
    count = len(choices) or len(labels) or max(4, ascii_uppercase.index(gold) + 1)
    found = extract(response, prompt=prompt.text, rule=Rule.CHOICE)
    if found.found is Found.OPEN_BOX:
        return Score(outcome=Outcome.TRUNCATED, reward=0.0, extracted=found.text, note=found.found.value)
    if found.found in (Found.OPEN_THINKING, Found.EMPTY):
        return Score(outcome=Outcome.NO_ANSWER, reward=0.0, note=found.found.value)
    letters = ascii_uppercase[:count]
    text = _plain(found.text)
    chosen = _chosen(text, letters, choices, labels, anchored=found.found is not Found.WHOLE)
    if (
        len(chosen) == 1
        and chosen in letters
        and _is_hedged(_plain(found.line or found.text), chosen, letters, choices)
    ):
        return Score(outcome=Outcome.NO_ANSWER, reward=0.0, note="another letter or option stands beside the answer")
    if not chosen:
        return Score(outcome=Outcome.NO_ANSWER, reward=0.0, note="no letter stands for an answer")
    correct = chosen == gold
    outcome = Outcome.CORRECT if correct else Outcome.WRONG
    return Score(outcome=outcome, reward=float(correct), extracted=chosen, note=found.found.value)


def _reference(answer: str, choices: Sequence[str], labels: Sequence[str]) -> str | None:
    """The letter of the reference answer; None if it is no option."""
    answer = answer.strip().strip("()[].").strip()
    count = len(choices) or len(labels) or 26
    if answer in labels:
        at = labels.index(answer)
    elif len(answer) == 1 and answer.upper() in ascii_uppercase:
        at = ascii_uppercase.index(answer.upper())
    elif answer.isdecimal() and not labels and answer not in choices:
        at = int(answer[:4]) - 1
    else:
        at = choices.index(answer) if answer in choices else -1
    return ascii_uppercase[at] if 0 <= at < min(count, 26) else None


def _chosen(text: str, letters: str, choices: Sequence[str], labels: Sequence[str], *, anchored: bool) -> str:
    """The letter (or letters, or a letter that is no option) that a text settles on; empty if it does not."""
    for at, option in enumerate(choices):
        if len(option) > 1 and _same_text(text, option) and sum(_same_text(text, other) for other in choices) == 1:
            return letters[at]
    letter = _with_its_text(text, letters, choices)
    if letter:
        return letter
    if anchored:
        return _leading(text, labels) or _standing(text, letters)
    start = _START.fullmatch(text) if "\n" not in text else None
    if start is not None and _is_option(start, letters, choices):
        return _leading(text, labels)
    return _standing(text, letters)


def _is_option(start: re.Match[str], letters: str, choices: Sequence[str]) -> bool:
    """Whether a line is a letter alone, or a letter with the text of its option: ``b. 9 cm``."""
    letter, mark, rest = start.groups()
    if not rest:
        return True
    at = letters.find(letter.upper())
    if 0 <= at < len(choices) and _same_text(rest, choices[at]):
        return True
    return mark.startswith((")", ".", ":")) and not _LETTER.search(rest) and not _REJECTED.match(rest)


def _plain(text: str) -> str:
    """Without LaTeX around words."""
    return _WRAPPED.sub(r"\1", _WRAPPED.sub(r"\1", text)).replace("$", "").replace("\u2019", "'").strip()


def _same_text(first: str, second: str) -> bool:
    return _plain(first).strip(" .\n").casefold() == _plain(second).strip(" .\n").casefold()


def _leading(text: str, labels: Sequence[str]) -> str:
    """The letter that a text begins with, all letters if it names several, empty if it begins with a word."""
    match = _START.match(text)
    if match is None:
        return ""
    letter, mark, rest = match.groups()
    if letter.isdecimal():
        return ascii_uppercase[labels.index(letter)] if letter in labels and not rest else ""
    following = text[match.end(1) :]
    if (
        rest
        and not mark
        and (letter.islower() or letter in "AI")
        and not (_REASON.match(rest) or _NEXT.match(following))
    ):
        return ""  # the article or the pronoun
    if not mark and _REJECTED.match(following):
        return ""
    chosen = letter.upper()
    while (another := _NEXT.match(following)) is not None:
        chosen += another.group(1) or another.group(2)
        following = following[another.end() :]
    return chosen


def _with_its_text(text: str, letters: str, choices: Sequence[str]) -> str:
    """The letter that a text begins with if its option's text follows: ``(D) I, II, and III``; else empty."""
    start = _START.match(text)
    letter = start.group(1).upper() if start is not None and choices else ""
    if start is None or letter not in letters or not letter:
        return ""
    return letter if _after(text, start.end(1), choices[letters.index(letter)]) > start.end(1) else ""


def _after(line: str, at: int, option: str) -> int:
    """Where a line goes on after an option's text, which may have marks before it; `at` if it does not stand there."""
    own, lower = _plain(option).strip(" .").casefold(), line.casefold()
    for start in range(at, min(at + 10, len(line))):
        end = start + len(own)
        negative = lower[start - 1] in "-\u2212" and own[:1].isdigit()
        if own and lower.startswith(own, start) and not negative and not lower[end : end + 1].isalnum():
            return end
        if line[start].isalnum():
            break
    return at


def _is_hedged(line: str, chosen: str, letters: str, choices: Sequence[str]) -> bool:
    """Whether a line that begins with a letter goes on with another option: ``B. C. D.``, ``B? C``, ``B, maybe C``.

    The line is read up to the first word that neither hedges nor is an option's text: what follows is an explanation.
    """
    start = _START.match(line)
    if start is None or start.group(1).upper() != chosen:
        return False
    at, cased = start.end(1), start.group(1).isupper()
    own = _plain(choices[letters.index(chosen)]).casefold() if choices else ""
    at = _after(line, at, own)
    texts = sorted((_plain(option).casefold() for option in choices), key=len, reverse=True)
    texts = [text for text in texts if len(text) > 1]
    while at < min(len(line), _LONGEST_LINE):
        rest = line[at : at + _LONGEST_LINE]
        named = next((text for text in texts if re.match(re.escape(text) + r"(?!\w)", rest.casefold())), "")
        letter = _ANOTHER.match(rest)
        if named and named != own:
            return True
        if named:
            at += len(named)
        elif not rest[0].isalnum():
            at += 1
        elif letter is not None and letter.group(1).upper() in letters and (not cased or letter.group(1).isupper()):
            denied = _DENIED.search(line[max(0, at - 24) : at]) or _REJECTED.match(rest, 1)
            if letter.group(1).upper() != chosen and not denied:
                return _PROSE.match(rest, 1) is None
            at += 1
        elif (word := _HEDGE.match(rest)) is not None:
            at += word.end()
        else:
            return False
    return False


def _standing(text: str, letters: str) -> str:
    """The one letter that stands alone in a text and is not rejected there; empty if there are none or several."""
    kept, rejected = set[str](), set[str]()
    for match in _LETTER.finditer(text):
        bracket, letter = match.groups()
        if letter not in letters:
            continue
        if _REJECTED.match(text, match.end()) or _DENIED.search(text[max(0, match.start() - 24) : match.start(2)]):
            rejected.add(letter)
        elif (
            bracket
            or letter not in "AI"
            or not _ARTICLE.match(text, match.end())
            or _NAMED.search(text[max(0, match.start() - 12) : match.start()])
        ):
            kept.add(letter)  # else it is the article or the pronoun
    kept -= rejected
    return kept.pop() if len(kept) == 1 else ""
