"""What ``school scores`` shows: each profile's score, readiness and EFC figure, and every change with its cause."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from orchestrator.errors import UsageError
from orchestrator.principal.director import self_rated
from orchestrator.principal.efc import Efc, efc_of, feedback_of, history
from orchestrator.principal.ledger import Ledger
from orchestrator.principal.request import DIFFICULTIES
from orchestrator.principal.routing import Profile, load_routing
from orchestrator.principal.scoring import REHEARSED, START, changes, current, scores
from orchestrator.settings import settings

if TYPE_CHECKING:
    from collections.abc import Iterable


def score_report(*, profile: str = "", bead: str = "", limit: int = 20) -> dict[str, Any]:
    """Return what ``school scores`` shows of the process's home.

    Raises:
        UsageError: there is no such profile.
        LedgerError: the ledger can't be read.
    """
    home = settings().home()
    routing = load_routing(home)
    if not home.ledger.exists():
        known = {p.name: p for p in routing.profiles.values() if profile in {"", p.name}}
        if profile and not known:
            raise _unknown(profile, routing.profiles)
        return {"profiles": [_figures(None, p) for p in known.values()], "changes": []}
    with Ledger(home.ledger) as ledger:
        scored = scores(ledger)
        roles = {name: p.role for name, p in routing.profiles.items()}
        roles_of = {**{name: name.removeprefix(REHEARSED).removeprefix("student-") for name in scored}, **roles}
        if profile and profile not in roles_of:
            raise _unknown(profile, roles_of)
        names = [profile] if profile else sorted(roles_of)
        report: dict[str, Any] = {
            "profiles": [_figures(ledger, routing.profiles.get(n) or Profile(n, roles_of[n])) for n in names],
            "changes": changes(ledger, profile=profile, bead=bead, limit=limit),
        }
        if bead:
            report |= {"feedback": feedback_of(ledger, bead), "efc": _efc_json(efc_of(ledger, bead=bead))}
        return report


def _unknown(profile: str, known: Iterable[str]) -> UsageError:
    return UsageError(f"There is no profile {profile!r}.", next_step=f"Use one of: {', '.join(sorted(known))}.")


def _figures(ledger: Ledger | None, profile: Profile) -> dict[str, Any]:
    past = history(ledger, profile.name) if ledger else []
    return {
        "profile": profile.name,
        "role": profile.role,
        "score": round(current(ledger, profile.name), 2) if ledger else START,
        "beads": len(past),
        "readiness": {level: self_rated(past, level) for level in DIFFICULTIES},
        "efc": _efc_json(efc_of(ledger, profile=profile.name) if ledger else Efc(0, 0, 0, 0.0)),
    }


def _efc_json(figure: Efc) -> dict[str, Any]:
    return {**asdict(figure), "value": round(figure.value, 4)}
