"""The words, commands and characters that the reader of formulas knows."""

# ruff: noqa: RUF001  characters that look alike are what is read here

import unicodedata

FRACTIONS: dict[str, str] = {
    sign: unicodedata.normalize("NFKC", sign).replace("\N{FRACTION SLASH}", "/")
    for sign in "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞⅐⅑⅒"
}
"""Fractions in one character: ¾ is "3/4"."""

LETTERS = (
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi "
    "rho sigma tau upsilon phi varphi chi psi omega Gamma Delta Xi Lambda Sigma Upsilon Phi Psi"
)
GREEK: dict[str, str] = {name: name for name in LETTERS.split()} | {
    "pi": "pi",
    "ell": "ell",
    "hbar": "hbar",
    "infty": "infty",
    "α": "alpha",
    "β": "beta",
    "γ": "gamma",
    "δ": "delta",
    "ε": "epsilon",
    "θ": "theta",
    "λ": "lambda",
    "μ": "mu",
    "π": "pi",
    "ρ": "rho",
    "σ": "sigma",
    "τ": "tau",
    "φ": "phi",
    "ϕ": "phi",
    "ω": "omega",
    "Δ": "Delta",
    "Σ": "Sigma",
    "Φ": "Phi",
    "∞": "infty",
}
"""Commands and characters that name a variable or a constant."""

_FUNCTION_NAMES = (
    "sin cos tan cot sec csc sinh cosh tanh coth arcsin arccos arctan arccot arcsinh arccosh "
    "arctanh ln log lg exp gcd lcm min max det Theta Omega"
)
FUNCTIONS: dict[str, str] = {name: name for name in _FUNCTION_NAMES.split()} | {
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "Θ": "Theta",
    "Ω": "Omega",
}
"""Names of functions, with and without a backslash."""

SPELLED: dict[str, str] = {name: name for name in LETTERS.split() if len(name) > 3} | {
    "pi": "pi",
    "Pi": "pi",
    "inf": "infty",
    "Inf": "infty",
    "infinity": "infty",
    "Infinity": "infty",
    "infty": "infty",
}
"""Words that name a variable or a constant without a backslash."""

SCALES: dict[str, int] = {
    "dozen": 12,
    "hundred": 100,
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
}
"""Words that multiply the number before them."""

SIGNS_IN_WORDS: dict[str, str] = {
    **{name: name for name in ("or", "and", "sqrt", "cbrt")},
    "is": "=",
    "to": ":",
    **dict.fromkeys(("about", "approximately", "approx", "roughly", "nearly", "around"), "approx"),
}
"""Words that stand for a sign between or before formulas."""

_TEXT_COMMANDS = (
    "text textbf textit textrm textnormal textsf texttt operatorname mathrm mathbf mathit mathsf "
    "mbox hbox mathnormal mathcal mathscr boldsymbol bm underline boxed fbox"
)
TEXT_COMMANDS = frozenset(_TEXT_COMMANDS.split())
"""Commands whose group is words, or mathematics in another type."""

_LOOKS = (
    "displaystyle textstyle scriptstyle limits quad qquad thinspace medspace thickspace "
    "left right big Big bigg Bigg bigl bigr Bigl Bigr rm bf it hfill nonumber "
    "tiny small normalsize large Large LARGE huge Huge"
)
ACCENTS = frozenset(("overline", "bar", "vec", "hat", "widehat", "tilde", "overrightarrow"))
"""Commands that make another name of a name."""

DROPPED = frozenset(_LOOKS.split())
"""Commands that change the looks only."""

COMMANDS: dict[str, str] = {
    **dict.fromkeys(("times", "cdot", "ast", "star", "×", "·", "∙", "⋅"), "*"),
    **dict.fromkeys(("div", "÷", "∕", "⁄"), "/"),
    **dict.fromkeys(("le", "leq", "leqslant", "≤", "⩽", "=<"), "<="),
    **dict.fromkeys(("ge", "geq", "geqslant", "≥", "⩾"), ">="),
    **dict.fromkeys(("lt",), "<"),
    **dict.fromkeys(("gt",), ">"),
    **dict.fromkeys(("ne", "neq", "≠"), "!="),
    **dict.fromkeys(("approx", "approxeq", "simeq", "≈"), "approx"),
    **dict.fromkeys(("equiv", "==", ":=", "≡"), "="),
    **dict.fromkeys(("pm", "±"), "pm"),
    **dict.fromkeys(("mp", "∓"), "mp"),
    **dict.fromkeys(("in", "∈"), "in"),
    **dict.fromkeys(("cup", "∪"), "cup"),
    **dict.fromkeys(("cap", "∩"), "cap"),
    **dict.fromkeys(("setminus", "backslash", "smallsetminus", "∖"), "setminus"),
    **dict.fromkeys(("emptyset", "varnothing", "∅"), "emptyset"),
    **dict.fromkeys(("ldots", "dots", "cdots", "dotsc", "dotsb", "...", "…"), "..."),
    **dict.fromkeys(("circ", "degree", "°"), "degree"),
    **dict.fromkeys(("lor", "vee"), "or"),
    **dict.fromkeys(("land", "wedge"), "and"),
    **dict.fromkeys(("mid", "vert", "∣"), "|"),
    **dict.fromkeys(("langle", "⟨"), "langle"),
    **dict.fromkeys(("rangle", "⟩"), "rangle"),
    **dict.fromkeys(("lfloor", "⌊"), "lfloor"),
    **dict.fromkeys(("rfloor", "⌋"), "rfloor"),
    **dict.fromkeys(("lceil", "⌈"), "lceil"),
    **dict.fromkeys(("rceil", "⌉"), "rceil"),
    **dict.fromkeys(("{", "lbrace"), "\\{"),
    **dict.fromkeys(("}", "rbrace"), "\\}"),
    **dict.fromkeys(("lbrack",), "["),
    **dict.fromkeys(("rbrack",), "]"),
    "colon": ":",
    "prime": "'",
    "%": "%",
    "&": "&",
    "$": "dollar",
    "€": "euro",
    "£": "pound",
    "¢": "cent",
    "¥": "yen",
    "₹": "rupee",
    "\\": "\\\\",
    "**": "^",
    "√": "sqrt",
    "∛": "cbrt",
    "lvert": "lvert",
    "rvert": "rvert",
    "angle": "angle",
    "triangle": "angle",
    "∠": "angle",
    "mathbb": "mathbb",
}
"""Commands and characters, without their backslash, that are one sign."""

RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n")
LOWERED = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊₋ₙ", "0123456789+-n")
"""Superscripts and subscripts."""

UNICODE: dict[str, str] = {
    **dict.fromkeys("−–—‐‑‒﹣－", "-"),
    **dict.fromkeys("＋", "+"),
    **dict.fromkeys("＝", "="),
    **dict.fromkeys("，、", ", "),
    "。": ".",
    "；": ";",
    **dict.fromkeys("：", ":"),
    **dict.fromkeys("（", "("),
    **dict.fromkeys("）", ")"),
    **dict.fromkeys("％", "%"),
    **dict.fromkeys("＄", "$"),
    **dict.fromkeys("′’‘", "'"),
    **{chr(0xFF10 + value): str(value) for value in range(10)},
    **{sign: " \\frac{{{}}}{{{}}}".format(*FRACTIONS[sign].split("/")) for sign in FRACTIONS},
    "ℝ": "\\mathbb{R}",
    "ℤ": "\\mathbb{Z}",
    "ℕ": "\\mathbb{N}",
    "ℚ": "\\mathbb{Q}",
    "ℂ": "\\mathbb{C}",
}
"""Characters that are only another spelling."""
