"""Checks of what is said: keywords, letters, lengths, letter case, commas, language."""

import re
import sys
import unicodedata

from brorl.verifiers.ifeval.arguments import (
    Arguments,
    BadInstruction,
    Check,
    compare,
    count_argument,
    text_argument,
    texts_argument,
)
from brorl.verifiers.ifeval.language import in_language, may_be_english
from brorl.verifiers.ifeval.units import fold, occurrences, sentences, words

_COMMAS = frozenset(
    char
    for char in map(chr, range(sys.maxunicode))
    if unicodedata.category(char) == "Po" and "COMMA" in unicodedata.name(char, "").split()
)


def keywords_existence(text: str, kwargs: Arguments) -> bool:
    """Every keyword occurs as a whole word."""
    return all(occurrences(keyword, text) for keyword in texts_argument(kwargs, "keywords"))


def keywords_frequency(text: str, kwargs: Arguments) -> bool:
    """The keyword occurs, as a whole word, at least or less than so many times."""
    return compare(occurrences(text_argument(kwargs, "keyword"), text), kwargs, "relation", "frequency")


def forbidden_words(text: str, kwargs: Arguments) -> bool:
    """No forbidden word occurs as a whole word."""
    return not any(occurrences(word, text) for word in texts_argument(kwargs, "forbidden_words"))


def letter_frequency(text: str, kwargs: Arguments) -> bool:
    """One character, letter or sign, occurs at least or less than so many times, ignoring case."""
    letter = text_argument(kwargs, "letter").casefold()
    if len(letter) != 1:
        raise BadInstruction(f"argument 'letter' must be one character, not {letter!r}")
    return compare(text.casefold().count(letter), kwargs, "let_relation", "let_frequency")


def number_sentences(text: str, kwargs: Arguments) -> bool:
    """At least or less than so many sentences."""
    return compare(len(sentences(text)), kwargs, "relation", "num_sentences")


def number_words(text: str, kwargs: Arguments) -> bool:
    """At least or less than so many words."""
    return compare(len(words(text)), kwargs, "relation", "num_words")


def nth_paragraph_first_word(text: str, kwargs: Arguments) -> bool:
    """So many paragraphs, parted by blank lines, and the n-th begins with the word."""
    total = count_argument(kwargs, "num_paragraphs")
    nth = count_argument(kwargs, "nth_paragraph")
    if not 1 <= nth <= total:
        raise BadInstruction(f"paragraph {nth} of {total} does not exist")
    first_word = text_argument(kwargs, "first_word")
    paragraphs = [p for p in re.split(r"\n[^\S\n]*\n", text) if p.strip()]
    if len(paragraphs) != total:
        return False
    found = fold(" ".join(words(paragraphs[nth - 1])[:1]))
    return found == fold(first_word) or found.startswith(fold(first_word) + "'")  # "It's" begins with the word "it"


def english_capital(text: str, _kwargs: Arguments) -> bool:
    """English, every letter a capital."""
    return text.isupper() and may_be_english(text)


def english_lowercase(text: str, _kwargs: Arguments) -> bool:
    """English, no capital letter."""
    return text.islower() and may_be_english(text)


def capital_word_frequency(text: str, kwargs: Arguments) -> bool:
    """At least or less than so many words written in capitals only ("I" and "COVID-19" are such words)."""
    capitals = sum(word.isupper() for word in words(text))
    return compare(capitals, kwargs, "capital_relation", "capital_frequency")


def no_comma(text: str, _kwargs: Arguments) -> bool:
    """No comma of any script, inside numbers neither."""
    return _COMMAS.isdisjoint(text)


def response_language(text: str, kwargs: Arguments) -> bool | None:
    """The whole response is in one language; None where the text is too short to tell."""
    return in_language(text, text_argument(kwargs, "language").lower())


CONTENT_CHECKS: dict[str, Check] = {
    "keywords:existence": keywords_existence,
    "keywords:frequency": keywords_frequency,
    "keywords:forbidden_words": forbidden_words,
    "keywords:letter_frequency": letter_frequency,
    "language:response_language": response_language,
    "length_constraints:number_sentences": number_sentences,
    "length_constraints:number_words": number_words,
    "length_constraints:nth_paragraph_first_word": nth_paragraph_first_word,
    "change_case:english_capital": english_capital,
    "change_case:english_lowercase": english_lowercase,
    "change_case:capital_word_frequency": capital_word_frequency,
    "punctuation:no_comma": no_comma,
}
