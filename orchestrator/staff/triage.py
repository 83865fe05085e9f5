"""classify_issue: what an issue is and who can take it, by rules that a person can read (R-62).

Labels say more than the title, the title more than the body. Nobody's text is followed: an issue that asks for a
classification gets the one its words give it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

Kind = Literal["bug", "enhancement"]
State = Literal["ready-for-agent", "needs-info", "needs-triage", "ready-for-human"]


class Triage(NamedTuple):
    """The classification, and the rule that gave its state."""

    kind: Kind
    state: State
    because: str


def _words(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(rf"(?:{pattern})" for pattern in patterns), re.IGNORECASE)


# -- what it is ------------------------------------------------------------------------------------------------------
_BUG_LABEL: Final = _words(
    r"\bbugs?\b", r"\bcrash", r"\bregression", r"\bdefect", r"\bsecurity\b", r"\bvulnerab", r"\bflaky\b"
)
_FEATURE_LABEL: Final = _words(
    r"\benhancement",
    r"\bfeature",
    r"\bimprovement",
    r"\bdoc(s|umentation)\b",
    r"\brefactor",
    r"\bchore\b",
    r"\bdeprecation",
    r"\brfc\b",
    r"\bproposal",
)
# how a title may begin: conventional commits, tags in brackets, or a verb that asks for something
_BUG_START: Final = _words(r"^\W*(bug|bugfix|fix(es|ed)?|hotfix|regression|crash|vuln|security|problem)\b")
_FEATURE_START: Final = _words(
    r"^\W*(feat|feature|feaure|enhancement|docs?|chore|refactor|perf|rfc|proposal|request|idea)\b(\s*request)?",
    r"^\W*(add|allow|support|make|implement|introduce|provide|enable|expose|consider|document|update|remove|improve"
    r"|coordinate|use|using|create|extend|config)\b",
)
_BUG_TITLE: Final = _words(
    r"\bcrash",
    r"\b(type|value|key|attribute|runtime|syntax|import)?errors?\b",
    r"\bexception",
    r"\bfail(s|ed|ure|ing)?\b",
    r"\bbroken?\b",
    r"\bbreaks\b",
    r"\bbug\b",
    r"\bregression",
    r"\bleak(s|ing)?\b",
    r"\bincorrect(ly)?\b",
    r"\bwrong\b",
    r"(does|do|is|are|was)(n.?t| not) work",
    r"\bnot working\b",
    r"\btypos?\b",
    r"\bout(dated| of date)\b",
    r"\bhang(s|ing)?\b",
    r"\bdead-?lock",
    r"\brace condition",
    r"\bcorrupt",
    r"\bvulnerab",
    r"\btraversal\b",
    r"\bCVE-\d|\bCWE-\d",
    r"\bpanic",
    r"\bsegfault",
    r"\bunexpected",
    r"\bmissing\b",
    r"\bflaky\b",
    r"\bcan.?t\b",
    r"\bcannot\b",
    r"\bunable\b",
)
_FEATURE_TITLE: Final = _words(
    r"\bsupport\b",
    r"\bshould be (configurable|possible|able|optional)",
    r"\bconfigurable\b",
    r"\boptions?\b",
    r"\bfeature",
    r"\bproposal\b",
    r"\bdeprecat",
    r"\bversioning\b",
    r"\bwould be (nice|great)",
    r"\bability to\b",
    r"\bbreaking\b",
)
_BUG_BODY: Final = _words(
    r"steps? to reproduce",
    r"(expected|actual) (behaviou?r|result)",
    r"traceback \(most recent",
    r"\bstack ?trace\b",
    r"describe the bug",
    r"\bpanicked at\b",
    r"segmentation fault",
    r"\bbug type\b",
    r"\bmemory leak",
)

# -- who can take it -------------------------------------------------------------------------------------------------
_STATE_LABELS: Final[tuple[tuple[State, re.Pattern[str]], ...]] = (
    (
        "ready-for-human",
        _words(
            r"ready[- ]for[- ]human",
            r"needs?[- :]*(human|design|decision|discussion|breaking)",
            r"human[- ]review",
            r"\bsecurity\b",
            r"\bvulnerab",
            r"\brfc\b",
            r"\bproposal",
            r"breaking",
            r"\bdeprecation",
            r"\blegal\b",
            r"decision",
        ),
    ),
    (
        "needs-info",
        _words(
            r"needs?[- :]*(info|more|repro|feedback|details)",
            r"\bquestion\b",
            r"waiting[- ]for",
            r"awaiting",
            r"cannot reproduce",
            r"\bincomplete\b",
        ),
    ),
    ("needs-triage", _words(r"(needs?|status)?[- :]*triage", r"untriaged", r"unconfirmed")),
    (
        "ready-for-agent",
        _words(
            r"ready[- ]for[- ]agent",
            r"good first issue",
            r"help wanted",
            r"\bconfirmed\b",
            r"\baccepted\b",
            r"E-(easy|medium)",
        ),
    ),
)
_HUMAN: Final = _words(
    r"\bsecurity\b",
    r"\bvulnerab",
    r"\bCVE-\d",
    r"\bCWE-\d",
    r"\bpath[/ ].{0,12}traversal",
    r"\bexploit",
    r"\bbreaking\b",
    r"\bRFCs?\b",
    r"\bproposal\b",
    r"\bdeprecat",
    r"\blicen[cs]e\b",
    r"\bversioning\b",
    r"\bpolicy\b",
    r"\bprivacy\b",
)
_QUESTION: Final = _words(
    r"\?\s*!*$",
    r"^\W*(how|why|what|where|when|who|can|could|is|are|does|do|should) .*\?",
    r"\bhelp\b.*\b(please|me|my|not working)\b|\bhelp my\b",
    r"^\W*(question|help)\b",
    r"can (someone|anyone) help",
)
_VAGUE: Final = _words(
    r"^\W*(it |something |this |check )?.{0,12}(does(n.?t| not)|is(n.?t| not)|.s not) work(ing)?( at all)?\W*$",
    r"^\W*(bug|issue|problem|error|help|broken|crash|update|feature|fix crash)\W*\d*\W*$",
    r"^\W*$",
)
_REPRODUCED: Final = _words(
    r"steps? to reproduce[^\n]*\n+\s*\S[^#]{30,}",
    r"traceback \(most recent",
    r"```[^`]{20,}```",
    r"panicked at",
    r"\bline \d+\b",
    r"\.(py|js|ts|go|rs|java|c|cpp|rb|cs|php)\b:?\d*",
)
_SMALL: Final = _words(r"\btypos?\b", r"\bout(dated| of date)\b", r"\bspelling\b", r"\bdead link", r"\bbroken link")
_BODY_ENOUGH: Final = 60  # characters of a body that say something
_TEMPLATE: Final = re.compile(
    r"<!--[\s\S]*?-->|^\s*#{1,6} .*$|^\s*\*\*[^*\n]{1,60}\*\*|^_No response_$|^\s*[-*] \[[ x]\].*$", re.MULTILINE
)


def classify_issue(title: str, labels: Iterable[str], body: str | None) -> Triage:
    """Return what an issue is and who can take it.

    Args:
        title: The issue's title.
        labels: The names of its labels.
        body: Its text.
    """
    names = [label.strip() for label in labels]
    title = " ".join(title.split())[:500]
    text = (body or "")[:50_000]
    kind = _kind(names, title, text)
    state, because = _state(names, title, text, kind)
    return Triage(kind, state, because)


def _kind(labels: list[str], title: str, body: str) -> Kind:
    rules: tuple[tuple[str, re.Pattern[str], Kind], ...] = (
        (title, _BUG_START, "bug"),
        (title, _FEATURE_START, "enhancement"),
        (title, _BUG_TITLE, "bug"),
        (title, _FEATURE_TITLE, "enhancement"),
        (body, _BUG_BODY, "bug"),
    )
    joined = "\n".join(labels)
    bug, feature = bool(_BUG_LABEL.search(joined)), bool(_FEATURE_LABEL.search(joined))
    if bug != feature:
        return "bug" if bug else "enhancement"
    return next((kind for text, pattern, kind in rules if pattern.search(text)), "enhancement")


def _state(labels: list[str], title: str, body: str, kind: Kind) -> tuple[State, str]:
    for state, pattern in _STATE_LABELS:
        if found := next((label for label in labels if pattern.search(label)), None):
            return state, f"the label {found!r}"
    shown = bool(_REPRODUCED.search(body))
    said = len(" ".join(_TEMPLATE.sub(" ", body).split())) >= _BODY_ENOUGH
    bug = kind == "bug"
    empty = bool(_VAGUE.search(title) or _QUESTION.search(title))
    rules: tuple[tuple[object, State, str], ...] = (
        (_HUMAN.search(title), "ready-for-human", "the title speaks of security, or of a decision"),
        (empty and not shown, "needs-info", "the title asks, or names nothing to do"),
        (empty, "needs-triage", "the title names nothing to do, and the body shows something"),
        (_SMALL.search(title), "ready-for-agent", "a small correction"),
        (_HUMAN.search(body), "ready-for-human", "the body speaks of security, or of a decision"),
        (bug and shown, "ready-for-agent", "a bug with something to reproduce it by"),
        (bug and said, "needs-triage", "a bug that is described and not shown"),
        (bug, "needs-info", "a bug without a way to see it"),
        (said, "ready-for-agent", "a wish that is described"),
    )
    return next(
        ((state, because) for holds, state, because in rules if holds),
        ("needs-triage", "a wish without a description"),
    )
