"""A few instructions beyond IFEval's 25, in the style of IFBench, where the rule needs no language model.

The other ids of IFBench stay unknown here, hence unscorable.
"""

from brorl.verifiers.ifeval.arguments import (
    Arguments,
    BadInstruction,
    Check,
    count_argument,
    text_argument,
    texts_argument,
)
from brorl.verifiers.ifeval.units import fold, occurrences, sentences, words


def choice(text: str, kwargs: Arguments) -> bool:
    """The response is exactly one of the options, punctuation and case aside."""
    answer = " ".join(words(fold(text)))
    return answer in {" ".join(words(fold(option))) for option in texts_argument(kwargs, "options")}


def person_names(text: str, kwargs: Arguments) -> bool:
    """At least so many different names of the list occur as whole words."""
    return sum(occurrences(name, text) > 0 for name in texts_argument(kwargs, "names")) >= count_argument(kwargs, "n")


def word_count_range(text: str, kwargs: Arguments) -> bool:
    """The number of words lies in the closed range."""
    low, high = count_argument(kwargs, "min_words"), count_argument(kwargs, "max_words")
    return low <= len(words(text)) <= high


def sentence_alphabet(text: str, kwargs: Arguments) -> bool:
    """As many sentences as letters, each beginning with its letter (A to Z by default)."""
    letters = text_argument({"letters": "abcdefghijklmnopqrstuvwxyz", **kwargs}, "letters").casefold()
    found = [words(sentence) for sentence in sentences(text)]
    return [first[0][0].casefold() for first in found if first] == list(letters)


def words_position(text: str, kwargs: Arguments) -> bool:
    """The word stands at each of the positions (1 is the first word, -1 the last; IFBench's own are 2 and -2)."""
    word = fold(text_argument(kwargs, "word" if "word" in kwargs else "keyword"))
    positions = kwargs.get("positions", [2, -2])
    if not isinstance(positions, list) or not positions or not all(isinstance(p, int) and p for p in positions):
        raise BadInstruction(f"argument 'positions' must be a list of whole numbers other than 0, not {positions!r}")
    found = [fold(w) for w in words(text)]
    return all(len(found) >= abs(p) and found[p - 1 if p > 0 else p] == word for p in positions)


BENCH_CHECKS: dict[str, Check] = {
    "choice": choice,
    "count:person_names": person_names,
    "count:word_count_range": word_count_range,
    "custom:sentence_alphabet": sentence_alphabet,
    "words:words_position": words_position,
}
