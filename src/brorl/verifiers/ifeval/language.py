"""Which language a response is in, the same answer every time.

The script decides where it can. Between languages of one script a fixed naive Bayes model decides (py3langid: no seed,
no sampling, nothing downloaded) where it is confident; below that, a short list of everyday words; where those say
nothing, the model again if it finds one language likely; and otherwise the answer is None: cannot be told.
"""
# ruff: noqa: RUF001, SIM905 - letters of many scripts are meant; word lists read best as text

import unicodedata
from collections import Counter
from copy import copy
from functools import cache

from py3langid.langid import MODEL_FILE, LanguageIdentifier

from brorl.verifiers.ifeval.arguments import BadInstruction
from brorl.verifiers.ifeval.units import fold, words

_CONFIDENT = 0.8  # probability of the best language at which the model's word is taken
_LIKELY = 0.4  # the same, where no everyday word speaks
_CERTAIN = 0.9  # probability of another language at which a text is held not to be English
_SCRIPT_SHARE = 0.7  # share of the letters that must be in the script of the language

# IFEval's thirty languages, and ten large ones that a response may be in instead.
_LANGUAGES = (
    "en es pt ar hi fr ru de ja it bn uk th ur ta te bg ko pl he fa vi ne sw kn mr gu pa ml fi"
    " zh nl sv da no cs tr ro hu el id"
).split()
_SCRIPTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("hi", "mr", "ne", "sa"), ("DEVANAGARI",)),
    **dict.fromkeys(("ar", "fa", "ur", "ps", "ug"), ("ARABIC",)),
    **dict.fromkeys(("ru", "uk", "bg", "be", "mk", "kk", "ky", "mn", "tg", "tt"), ("CYRILLIC",)),
    "sr": ("CYRILLIC", "LATIN"),
    "bn": ("BENGALI",),
    "as": ("BENGALI",),
    "pa": ("GURMUKHI", "ARABIC"),
    "gu": ("GUJARATI",),
    "or": ("ORIYA",),
    "ta": ("TAMIL",),
    "te": ("TELUGU",),
    "kn": ("KANNADA",),
    "ml": ("MALAYALAM",),
    "si": ("SINHALA",),
    "th": ("THAI",),
    "lo": ("LAO",),
    "km": ("KHMER",),
    "my": ("MYANMAR",),
    "ko": ("HANGUL",),
    "ja": ("HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "CJK"),
    "zh": ("CJK",),
    "he": ("HEBREW",),
    "el": ("GREEK",),
    "ka": ("GEORGIAN",),
    "hy": ("ARMENIAN",),
    "am": ("ETHIOPIC",),
}
# Scripts of one language each: the script is the answer.
_DECISIVE = {s for s, n in Counter(s for scripts in _SCRIPTS.values() for s in scripts).items() if n == 1} - {"LATIN"}
_ALIASES = {"nb": "no", "nn": "no", "iw": "he", "in": "id"}

# What people say in a word or two: greetings, thanks, yes and no.
_EVERYDAY: dict[str, str] = {
    "en": "hello hi hey yes no please thanks thank you sorry goodbye welcome good morning the and is of",
    "de": "hallo guten morgen tag abend danke bitte ja nein tschüss ich und der das ist nicht willkommen",
    "fr": "bonjour bonsoir salut merci oui non au revoir s'il vous plaît je et le les est bienvenue",
    "es": "hola buenos días buenas noches gracias sí no adiós por favor amigo amigos el los y es bienvenido",
    "pt": "olá oi bom dia boa noite obrigado obrigada sim não adeus por favor e o os é bem-vindo",
    "it": "ciao buongiorno buonasera grazie sì no prego arrivederci per favore il gli e è benvenuto",
    "nl": "hallo goedemorgen dank bedankt ja nee alstublieft ik en het een is niet welkom",
    "sv": "hej god morgon tack ja nej snälla jag och det är inte välkommen",
    "da": "hej god morgen tak ja nej venligst jeg og det er ikke velkommen",
    "no": "hei god morgen takk ja nei vennligst jeg og det er ikke velkommen",
    "fi": "hei moi terve huomenta kiitos kyllä ei ole hyvä anteeksi minä ja on tervetuloa",
    "pl": "cześć dzień dobry dziękuję tak nie proszę przepraszam ja i jest witaj witamy",
    "cs": "ahoj dobrý den děkuji ano ne prosím já je vítejte",
    "ro": "salut bună ziua mulțumesc da nu te rog eu și este bine",
    "hu": "szia helló jó napot köszönöm igen nem kérem én és a az üdvözlöm",
    "tr": "merhaba selam günaydın teşekkürler teşekkür ederim evet hayır lütfen ben ve bir hoşgeldiniz",
    "id": "halo selamat pagi terima kasih ya tidak tolong saya dan itu adalah",
    "vi": "xin chào cảm ơn vâng không tôi và là làm ơn tạm biệt",
    "sw": "jambo habari asante ndiyo hapana tafadhali mimi na ni karibu",
    "ru": "привет здравствуйте спасибо да нет пожалуйста я и это не добро пожаловать",
    "uk": "привіт вітаю дякую так ні будь ласка я і це не ласкаво просимо",
    "bg": "здравей здравейте благодаря да не моля аз и това е добре дошли",
    "hi": "नमस्ते नमस्कार धन्यवाद हाँ नहीं कृपया मैं और है यह शुक्रिया",
    "mr": "नमस्कार नमस्ते धन्यवाद होय नाही कृपया मी आणि आहे हे",
    "ne": "नमस्ते नमस्कार धन्यवाद हो होइन कृपया म र छ यो",
    "ar": "مرحبا أهلا شكرا نعم لا من فضلك أنا و هذا السلام عليكم",
    "fa": "سلام ممنون متشکرم بله نه لطفا من و این است خداحافظ",
    "ur": "السلام علیکم شکریہ جی ہاں نہیں میں اور ہے یہ خدا حافظ",
}

_EVERYDAY_SETS = {name: frozenset(known.split()) for name, known in _EVERYDAY.items()}


@cache
def _model() -> LanguageIdentifier:
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


@cache
def _identifier(wanted: str) -> LanguageIdentifier:
    if wanted in _LANGUAGES and wanted != _LANGUAGES[0]:
        return _identifier(_LANGUAGES[0])
    identifier = copy(_model())
    identifier.set_languages([*_LANGUAGES, wanted])
    return identifier


def load_model() -> None:
    """Load the model now (about half a second), not at the first text."""
    _model()


def _script_shares(text: str) -> dict[str, float]:
    letters = Counter(char for char in text if char.isalpha())
    scripts: Counter[str] = Counter()
    for char, count in letters.items():
        scripts[unicodedata.name(char, "?").split()[0]] += count
    total = sum(scripts.values())
    return {script: count / total for script, count in scripts.items()}


def in_language(text: str, language: str) -> bool | None:
    """Is the text in the language (ISO 639-1 code, a region such as "-br" ignored)? None where it cannot be told.

    Raises:
        BadInstruction: a code that the model does not know.
    """
    code = language.replace("_", "-").split("-")[0]
    code = _ALIASES.get(code, code)
    if code not in _model().labels:
        raise BadInstruction(f"unknown language code {language!r}")
    shares = _script_shares(text)
    scripts = _SCRIPTS.get(code, ("LATIN",))
    if sum(shares.get(script, 0.0) for script in scripts) < _SCRIPT_SHARE:
        return False
    if any(shares.get(script, 0.0) > 0 for script in scripts if script in _DECISIVE):
        return True
    best, probability = _identifier(code).classify(fold(text))
    if probability >= _CONFIDENT:
        return best == code
    hits = _everyday_words(text)
    if hits:
        return hits[code] == max(hits.values())
    return best == code if probability >= _LIKELY else None


def _everyday_words(text: str) -> Counter[str]:
    """How many words of the text are everyday words of each language; languages without one are left out."""
    said = [fold(word) for word in words(text)]
    return +Counter({name: sum(word in known for word in said) for name, known in _EVERYDAY_SETS.items()})


def may_be_english(text: str) -> bool:
    """False where the text is mostly in another script, or certainly in another language.

    For instructions about letter case: "OK" and lists of names are too little to call a language.
    """
    if _script_shares(text).get("LATIN", 0.0) < _SCRIPT_SHARE:
        return False
    best, probability = _identifier("en").classify(fold(text))
    return best == "en" or probability < _CERTAIN
