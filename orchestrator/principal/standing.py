"""Whether an accepted bead still is what two judges passed (R-39, R-44): asked before a person's approval and a merge.

Nothing is taken from memory or from the report: the archived bookbag's seals are verified again with the teachers'
keys, the rule is applied again, and the repository is asked what its refs point at.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator import bookbag
from orchestrator.bookbag import files
from orchestrator.bookbag.store import MAX_BOOKBAG_BYTES, SUFFIX, decode
from orchestrator.errors import BookbagError, ConfigError, GitError, RepositoryUnusableError
from orchestrator.git.landing import kept_commit
from orchestrator.git.repository import open_repository
from orchestrator.principal.acceptance import decide
from orchestrator.principal.handoff import Expected, Keys, check_seals
from orchestrator.principal.keys import counting_keys
from orchestrator.sandbox.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.git.repository import Repository
    from orchestrator.home import Home


def archived_bag(home: Home, bead: str) -> dict[str, Any] | None:
    """Return a bead's bookbag from the archive, or from where it lies before that; None when neither has it.

    Raises:
        BookbagCorruptError: the file is there and is no bookbag of this bead.
    """
    for folder in (str(home.archive), str(home.bookbags)):
        name = bookbag.check_bead(bead) + SUFFIX
        data = files.read_file(folder, name, limit=MAX_BOOKBAG_BYTES)
        if data is not None:
            return decode(data, f"{folder}/{name}")
    return None


def why_not_accepted(home: Home, row: Mapping[str, Any]) -> str:
    """Return why R-39 does not hold of a bead, with its seals verified now; "" when it holds."""
    if row["status"] != "ended":
        return "it has not ended"
    if row["outcome"] != Outcome.ACCEPTED:
        return f"it ended as {row['outcome']}"
    try:
        bag = archived_bag(home, str(row["bead"]))
        keys = counting_keys(home)
    except (BookbagError, ConfigError) as error:
        return error.message
    if bag is None:
        return f"its bookbag is neither in {home.archive} nor in {home.bookbags}"
    return _why_not_judged(home, row, bag, keys)


def _why_not_judged(home: Home, row: Mapping[str, Any], bag: Mapping[str, Any], keys: Keys) -> str:
    bead, progress = str(row["bead"]), row["data"].get("progress") or {}
    evidence = str(progress.get("evidence_sha256") or "")
    bad = check_seals(bag, Expected(bead, str(row["head_sha"] or ""), evidence, keys))
    if bad:
        return "; ".join(reason or f"{teacher.upper()} has given no verdict" for teacher, reason in bad.items())
    decision = decide(bag, str((progress.get("verification") or {}).get("status")))
    if not decision.accepted:
        return "; ".join(decision.reasons)
    if bag.get("accepted") is not True:
        return "its bookbag does not say accepted"
    return _evidence_changed(home, bead, evidence)


def why_moved(row: Mapping[str, Any]) -> str:
    """Return what is no longer at the judged commit; "" when everything is where it was left."""
    try:
        repo = open_repository(Path(row["repo"]))
        return _moved(repo, row)
    except (RepositoryUnusableError, GitError) as error:
        return error.message


def why_not(home: Home, row: Mapping[str, Any]) -> str:
    """Return why a bead's commit may not be approved or merged; "" when it may."""
    return why_not_accepted(home, row) or why_moved(row)


def _moved(repo: Repository, row: Mapping[str, Any]) -> str:
    bead, head, base = str(row["bead"]), str(row["head_sha"] or ""), str(row["base_sha"])
    if head == base:
        return ""  # text alone: there is nothing in the repository that could move
    kept = kept_commit(repo, bead)
    if kept != head:
        return f"refs/school/{bead} is at {kept or 'nothing'}, not at {head}"
    branch = (row["data"].get("report") or {}).get("branch")
    if not branch:
        return "it has no branch"
    answer = repo.run("rev-parse", "--verify", "--quiet", "--end-of-options", f"refs/heads/{branch}", check=False)
    at = answer.stdout.decode().strip()
    if at != head:
        return f"the branch {branch} is at {at or 'nothing'}, not at {head}"
    # what follows is what was judged: the commit that was frozen on the base, and nothing between
    parents = repo.run("rev-list", "--parents", "--max-count=1", head).stdout.decode().split()[1:]
    return "" if parents == [base] else f"{head} does not follow on {base}"


def _evidence_changed(home: Home, bead: str, digest: str) -> str:
    """Compare the evidence with the seals, while it is kept (SCHOOL_ARCHIVE_DAYS)."""
    try:
        data = (home.evidence / bead / "evidence.json").read_bytes()
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"its evidence can't be read: {error.strerror}"
    return "" if hashlib.sha256(data).hexdigest() == digest else "its evidence was changed after the review"
