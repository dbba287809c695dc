"""Ask whether the tests notice the seeded faults: ``python -m tests.faults [NAME ...]``."""

import argparse
import json
import os
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from tests.faults.catalogue import all_faults
from tests.faults.fault import LEVELS, Fault
from tests.faults.runner import Copies, Outcome


def main() -> int:
    """Try the faults that are asked for. Return 0 if every one was caught, else 1."""
    options = _parser().parse_args()
    faults = _chosen(options.names, options.area)
    if options.list:
        for fault in faults:
            print(f"{fault.name:55} {fault.level:8} {fault.consequence}")
        return 0
    outcomes = []
    with Copies(options.jobs) as copies, ThreadPoolExecutor(options.jobs) as pool:
        if options.level is None:
            failed = copies.failure_without_fault(faults, 4 * options.seconds)
            if failed is not None:
                sys.exit(f"without any fault, the tests that should notice do not pass: {failed}")
        running = pool.map(lambda fault: copies.run(fault, options.level, options.seconds), faults)
        for number, outcome in enumerate(running, 1):
            outcomes.append(outcome)
            if not options.json:
                print(f"[{number}/{len(faults)}] {_line(outcome)}", flush=True)
    if options.json:
        print(json.dumps([_as_dict(outcome) for outcome in outcomes], indent=1))
    verdicts = Counter(outcome.verdict for outcome in outcomes)
    levels = Counter(outcome.fault.level for outcome in outcomes if outcome.verdict == "caught")
    print(_summary(len(outcomes), verdicts, levels), file=sys.stderr)
    return 0 if outcomes and verdicts["caught"] == len(outcomes) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("names", nargs="*", help="faults to try (default: all)")
    parser.add_argument("--area", help="only faults of this area of tests/faults")
    parser.add_argument("--level", choices=LEVELS, help="run all tests of this level, not those named by the fault")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="faults to try at once (default: one per core)"
    )
    parser.add_argument("--seconds", type=float, default=900.0, help="longest time per fault (default: 900)")
    parser.add_argument("--list", action="store_true", help="print the faults and run nothing")
    parser.add_argument("--json", action="store_true", help="print the outcomes as JSON")
    return parser


def _chosen(names: list[str], area: str | None) -> list[Fault]:
    faults = {fault.name: fault for fault in all_faults(area)}
    unknown = [name for name in names if name not in faults]
    if unknown:
        sys.exit(f"no fault is named {', '.join(unknown)}; --list shows all")
    return [faults[name] for name in names] or list(faults.values())


def _line(outcome: Outcome) -> str:
    return f"{outcome.verdict:8} {outcome.fault.level:8} {outcome.fault.name} ({outcome.seconds:.0f} s): {outcome.by}"


def _as_dict(outcome: Outcome) -> dict[str, object]:
    fault = outcome.fault
    return {
        "name": fault.name,
        "package": fault.package,
        "consequence": fault.consequence,
        "level": fault.level,
        "verdict": outcome.verdict,
        "by": outcome.by,
        "seconds": round(outcome.seconds, 1),
    }


def _summary(count: int, verdicts: Counter[str], levels: Counter[str]) -> str:
    by_level = ", ".join(f"{levels[level]} by {level} tests" for level in LEVELS if levels[level])
    others = ", ".join(
        f"{verdicts[verdict]} {verdict}" for verdict in ("survived", "hung", "broken") if verdicts[verdict]
    )
    return f"{verdicts['caught']} of {count} faults caught ({by_level or 'none'}){'; ' + others if others else ''}"


if __name__ == "__main__":
    sys.exit(main())
