"""Known failures and second tries: what the test runners have in common, and how they say it.

A test that fails is run again alone, up to two more times, since a busy machine breaks time-outs. One that fails each time counts as failed,
unless tests/known-failures.txt has it: `suite::test  # reason`, a fault of rsock that is not mended yet. Lines that scripts/test looks for:
`FAIL  `, `known `, `again `, `note  `, and at the end `N passed, N failed`, known failures in neither."""

from pathlib import Path

TRIES = 3
LIST = Path(__file__).resolve().parents[3] / "tests" / "known-failures.txt"


def known_failures(text: str) -> dict[str, str]:
    """The reasons by name. Raises `ValueError` for a line without a reason or without a suite, and for a test that is listed twice."""
    reasons: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, mark, reason = line.partition("  # ")
        name = name.strip()
        if not mark or not reason.strip() or "::" not in name or name in reasons:
            raise ValueError(f"{LIST.name}:{number}: not `suite::test  # reason`, or listed twice: {line}")
        reasons[name] = reason.strip()
    return reasons


class Ledger:
    """Counts the tests of a run and prints one line for each that was not simply passed."""

    def __init__(self) -> None:
        self.reasons = known_failures(LIST.read_text()) if LIST.exists() else {}
        self.good, self.bad = 0, 0

    def is_known(self, name: str) -> bool:
        """Is this failure expected?"""
        return name in self.reasons

    def passed(self, name: str, tries: int = 1) -> None:
        """A test that passed, at that try."""
        self.good += 1
        if name in self.reasons:
            print(f"note  {name} is in {LIST.name}, but passed", flush=True)
        elif tries > 1:
            print(f"again {name} passed at try {tries}", flush=True)

    def failed(self, name: str, why: str) -> None:
        """A test that failed at every try."""
        if name in self.reasons:
            print(f"known {name}: {self.reasons[name]}", flush=True)
        else:
            self.bad += 1
            print(f"FAIL  {name}: {why}", flush=True)

    def end(self) -> int:
        """The last line, and the exit status."""
        print(f"{self.good} passed, {self.bad} failed", flush=True)
        return 1 if self.bad or not self.good else 0
