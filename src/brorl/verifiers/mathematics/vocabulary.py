"""The words and macros that the grammar knows."""


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


FUNCTIONS = words(
    "sin cos tan cot sec csc arcsin arccos arctan arccot arcsec arccsc sinh cosh tanh ln log lg exp arg det gcd lcm "
    "max min Re Im"
)
ALWAYS_BRACKETED = words("det gcd lcm max min arg Re Im")
SYNONYMS = {
    "dfrac": "frac", "tfrac": "frac", "cfrac": "frac", "dbinom": "binom", "tbinom": "binom",
    "leq": "le", "geq": "ge", "leqslant": "le", "geqslant": "ge", "lt": "<", "gt": ">", "neq": "ne", "ast": "cdot",
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "infinity": "infty", "inf": "infty", "oo": "infty",
    "varnothing": "emptyset", "lbrace": "{", "rbrace": "}", "lbrack": "[", "rbrack": "]", "vert": "|", "lvert": "|",
    "rvert": "|", "land": "and", "wedge": "and", "lor": "or", "vee": "or", "colon": ":", "bullet": "cdot", "tg": "tan",
    "degree": "circ", "backslash": "setminus", "simeq": "approx", "varepsilon": "epsilon", "vartheta": "theta",
    "varphi": "phi", "|": "|", "lparen": "(", "rparen": ")", "cosec": "csc", "mid": "|", "textdegree": "circ",
}  # fmt: skip
WORDS = {"pi": "pi", "sqrt": "sqrt", "infinity": "infty", "infty": "infty", "inf": "infty", "oo": "infty"} | {
    name: SYNONYMS.get(name, name)
    for name in (*FUNCTIONS, "asin", "acos", "atan", "theta", "alpha", "beta", "lambda", "omega")
}
"""names that plain text writes without a backslash"""
CONSTANTS = {"pi": "pi", "infty": "infinity", "e": "e", "i": "i"}
GREEK = words(
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau upsilon phi chi psi omega "
    "Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega hbar ell"
)
ACCENTS = words("dot ddot bar hat tilde overline widehat")
PLAIN_STYLES = words("vec overrightarrow mathbf boldsymbol bm mathcal mathbb mathfrak mathtt underline")
FIGURES = words("triangle angle")
BIG_OPERATORS = words("sum prod int lim iint oint")
CURRENCIES = {"$": "$", "euro": "euro", "pound": "sterling"}
FACTOR_MACROS = FUNCTIONS | GREEK | ACCENTS | PLAIN_STYLES | FIGURES | BIG_OPERATORS | words(
    "frac sqrt binom pi infty lfloor lceil begin langle {"
)  # fmt: skip
"""macros that may follow a factor without an operator"""
RELATIONS = {
    "=": "=", "==": "=", "<": "<", ">": ">", "<=": "<=", ">=": ">=", "!=": "!=", "le": "<=", "ge": ">=", "ne": "!=",
    "approx": "~", "in": "in", ":": ":", "equiv": "=", "sim": "~",
}  # fmt: skip
SET_OPERATORS = {"cup": "union", "cap": "intersection", "setminus": "difference"}
MATRICES = words("pmatrix bmatrix matrix smallmatrix array Bmatrix")
SYSTEMS = words("cases aligned align gathered")
UNKNOWN_FUNCTIONS = frozenset("fghFGH")
"""letters that are functions whatever stands in the brackets after them; others only before one letter or number"""
