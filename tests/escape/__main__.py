"""``make escape``: carries out every attack of the catalogue and prints the list with its results.

Exit code 0 when no attack got through and none was left out, 1 otherwise.
"""

from __future__ import annotations

import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest

HERE = Path(__file__).parent
MARK = {"held": "held", "through": "THROUGH", "broken": "not carried out"}


class Results:
    """Takes the outcome of each test as pytest tells it."""

    def __init__(self) -> None:
        self.by_test: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test's call, or a phase before or after it that failed."""
        if report.when == "call":
            self.by_test[report.nodeid] = "held" if report.passed else "through" if report.failed else "broken"
        elif report.failed:
            self.by_test[report.nodeid] = "broken"


def main(arguments: list[str]) -> int:
    """Run the suite, print the catalogue, return the exit code."""
    catalogue = tomllib.loads((HERE / "catalogue.toml").read_text(encoding="utf-8"))["attack"]
    results = Results()
    elsewhere = sorted({entry["test"] for entry in catalogue if not entry["test"].startswith("tests/escape/")})
    code = pytest.main(
        ["-q", "--no-header", "-p", "no:cacheprovider", str(HERE), *elsewhere, *arguments], plugins=[results]
    )
    print()
    found = Counter()
    for family in dict.fromkeys(entry["family"] for entry in catalogue):
        print(f"\n{family}")
        for entry in (entry for entry in catalogue if entry["family"] == family):
            result = results.by_test.get(entry["test"], "broken")
            found[result] += 1
            seen = f"  (seen: {entry['seen']})" if "seen" in entry else ""
            print(f"  {MARK[result]:<8} {entry['id']:<44} {entry['tries']}{seen}")
            print(f"  {'':<8} {'':<44} held by: {entry['held_by']}")
    print(
        f"\n{len(catalogue)} attacks: {found['held']} held, {found['through']} through, {found['broken']} not carried out"
    )
    return 0 if code == 0 and found["held"] == len(catalogue) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
