"""Tables of the results of an evaluation, and the rows of docs/eval.md."""

import datetime
import statistics
from collections import Counter
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs/eval.md"
HEAD = ["task", "model", "mode", "passed", "calls", "tokens in", "cached", "out", "cost", "s", "remark"]


def table(rows):
    """Returns rows as lines with aligned columns."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


def median(results, key):
    known = [it[key] for it in results if it[key] is not None]
    return statistics.median(known) if known else None


def number(value, places=0):
    return "-" if value is None else f"{value:,.{places}f}"


def numbers(results):
    """Returns the medians of some runs as cells."""
    plain = [number(median(results, key)) for key in ("calls", "input_tokens", "cache_read_tokens", "output_tokens")]
    return [*plain, number(median(results, "cost"), 4), number(median(results, "seconds"), 1)]


def groups(results, *keys):
    """Returns the results by the values of some keys, in the order of their first occurrence."""
    found = {}
    for it in results:
        found.setdefault(tuple(it[key] for key in keys), []).append(it)
    return found


def remark(results):
    """Returns the most frequent reason why runs have failed, and what else is to be known of them."""
    reasons = Counter(it["why"] for it in results if not it["passed"])
    said = [reason for reason, _ in reasons.most_common(1)]
    codes = sorted({str(it["exit_code"]) for it in results if it["exit_code"] not in (0, None)})
    if codes:
        said.append(f"exit code {', '.join(codes)}")
    errors = [it["error"] for it in results if it["error"]]
    errors += [it["tool_error"] for it in results if not it["passed"] and it["tool_error"]]
    if errors:
        said.append(" ".join(str(errors[0]).split())[:120])
    left = sum(bool(it["left"]) for it in results)
    if left:
        said.append(f"PROCESSES LEFT in {left} runs: {next(it['left'] for it in results if it['left'])[0]}")
    return "; ".join(said)


def passed(results):
    return f"{sum(it['passed'] for it in results)}/{len(results)}"


def tasks_table(results):
    """Returns a row for each task, model and mode."""
    rows = [HEAD]
    by_task = sorted(results, key=lambda it: it["task"])
    for (task, name, mode), some in groups(by_task, "task", "name", "mode").items():
        rows.append([task, name, mode, passed(some), *numbers(some), remark(some)[:160]])
    return table(rows)


def summary(results):
    """Returns a row for each model and mode."""
    rows = [HEAD[1:]]
    for (name, mode), some in groups(results, "name", "mode").items():
        left = sum(bool(it["left"]) for it in some)
        rows.append([name, mode, passed(some), *numbers(some), f"processes left in {left} runs" if left else ""])
    return table(rows)


def scripted_table(results):
    """Returns a row for each task: the runs that must pass, and those that must not."""
    rows = [["task", "untouched", "solutions", "wrong ones", "s", "remark"]]
    for (task,), some in groups(results, "task").items():
        cells = []
        for kind in ("untouched", "solution", "wrong"):
            of_kind = [it for it in some if it["name"].startswith(kind)]
            fine = sum(is_as_expected(it) for it in of_kind)
            cells.append(f"{fine}/{len(of_kind)}")
        bad = [f"{it['name']}: {unexpected(it)}" for it in some if not is_as_expected(it)]
        rows.append([task, *cells, number(sum(it["seconds"] for it in some), 1), "; ".join(bad)[:400]])
    return table(rows)


def unexpected(result):
    """Returns in which way a scripted run is not as it must be; nothing if it is."""
    if result["left"]:
        return f"processes are left: {result['left'][0]}"
    if result["passed"] != result["expected"]:
        why = result["why"] or "passed"
        return f"{why} (exit code {result['exit_code']}, {result['error'] or result['tool_error'] or 'no error'})"
    if not result["expected"] and result["why"].startswith("the check itself failed"):
        return result["why"]
    if result["name"] == "untouched":
        return ""
    if result["exit_code"] != 0:
        return f"exit code {result['exit_code']}: {result['error']}"
    if result["expected"] and result["tool_error"]:
        return f"a tool call failed: {result['tool_error']}"
    if not result["calls"] or not result["input_tokens"]:
        return "no usage was collected"
    return ""


def is_as_expected(result):
    return not unexpected(result)


def add_rows(mark, rows):
    """Adds rows to the table of docs/eval.md that ends with this mark."""
    text, end = PAGE.read_text(), f"<!-- end of {mark} -->"
    before, after = text.split(end, 1)
    PAGE.write_text(before + "".join("| " + " | ".join(row) + " |\n" for row in rows) + end + after)


def today():
    return datetime.datetime.now(datetime.timezone.utc).date().isoformat()


def write(results, version, seed, command):
    """Adds a row to docs/eval.md for each model and mode."""
    rows = []
    for (name, mode), some in groups(results, "name", "mode").items():
        failed = [f"{task} {passed(of)}" if len(of) > 1 else task for (task,), of in groups(some, "task").items()
                  if not all(it["passed"] for it in of)]
        which = "all" if not any(it["passed"] for it in some) else ", ".join(failed) or "-"
        rows.append([today(), version, name, mode, passed(some), *numbers(some), str(seed), which, f"`{command}`"])
    add_rows("results", [[cell.replace("|", "\\|") for cell in row] for row in rows])


def write_scripted(results, version, seconds):
    """Adds a row to docs/eval.md for the scripted runs."""
    cells = []
    for kind in ("solution", "wrong", "untouched"):
        some = [it for it in results if it["name"].startswith(kind)]
        cells.append(f"{sum(it['passed'] for it in some)} of {len(some)}")
    left = sum(bool(it["left"]) for it in results)
    add_rows("scripted", [[today(), version, *cells, str(left), f"{seconds:.0f} s"]])
