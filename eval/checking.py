"""Helpers of the hidden checks of eval/tasks.

A check gets the workspace as its argument, exits with 0 if the task is done, and else prints the reason. Code of the
workspace runs in processes of its own: it is judged by the values that it returns, never by its exit code alone.
"""

import json
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

# The folder of the check that runs, and the files with which its workspace began.
TASK = Path(sys.argv[0]).resolve().parent
START = TASK / "files"
# The longest time for one command of a check, in seconds.
LIMIT = 30


def workspace():
    """Returns the folder that the check is to judge."""
    if len(sys.argv) != 2:
        sys.exit("usage: check WORKSPACE")
    return Path(sys.argv[1]).resolve()


def fail(why):
    """Ends the check: the task is not done, for this reason."""
    print(" ".join(str(why).split())[:400])
    sys.exit(1)


def expect(fine, why):
    if not fine:
        fail(why)


def same(got, wanted, what):
    """Ends the check unless a value is the wanted one."""
    if got != wanted:
        fail(f"{what}: got {got!r}, not {wanted!r}")


def text(folder, name):
    """Returns the text of a file that must exist."""
    try:
        return (folder / name).read_text()
    except (OSError, UnicodeDecodeError) as why:
        fail(f"{name} cannot be read: {why}")


def answer(folder, name):
    """Returns the value in a JSON file that must exist."""
    try:
        return json.loads(text(folder, name))
    except ValueError as why:
        fail(f"{name} is no JSON: {why}")


def run(folder, words, stdin=None, env=None):
    """Runs a command in a folder. Returns its exit code, its output and its messages."""
    own = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": str(folder), "LANG": "C.UTF-8",
           "PYTHONDONTWRITEBYTECODE": "1", "EVAL_RUN": os.environ.get("EVAL_RUN", ""), **(env or {})}
    try:
        done = subprocess.run([str(word) for word in words], cwd=folder, env=own, input=stdin or "", text=True,
                              capture_output=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        fail(f"{words[0]} {words[-1]} has not ended within {LIMIT} s")
    except (OSError, UnicodeDecodeError) as why:
        fail(f"{words[0]} cannot be run: {why}")
    return done.returncode, done.stdout, done.stderr


def values(folder, code, env=None):
    """Runs Python code in a folder, which calls `give` once. Returns the value that was given."""
    begin = "import json, sys; sys.path.insert(0, '.')\ndef give(value): print('\\ngiven:' + json.dumps(value))\n"
    status, out, err = run(folder, [sys.executable, "-c", begin + code], env=env)
    given = [line[len("given:"):] for line in out.splitlines() if line.startswith("given:")]
    if status or not given:
        fail((err.strip().splitlines() or [f"exit code {status}, nothing was returned"])[-1])
    return json.loads(given[-1])


def tests_pass(folder, where=".", env=None):
    """Ends the check unless the unit tests of the workspace pass, and there are some."""
    status, _, err = run(folder, [sys.executable, "-m", "unittest", "discover", "-s", where, "-t", "."], env=env)
    expect(status == 0 and "Ran 0 tests" not in err, f"its own tests fail: {err.strip()[-200:]}")


@contextmanager
def start_again():
    """Gives a folder with the workspace as the script `setup` of this task made it, from the same seed."""
    with tempfile.TemporaryDirectory() as base:
        seed = os.environ.get("EVAL_SEED", "1")
        status, _, err = run(Path(base), [TASK / "setup", base], env={"EVAL_SEED": seed})
        expect(status == 0, f"setup fails: {err[-200:]}")
        yield Path(base)


def unchanged(folder, *names):
    """Ends the check unless these files are as they were at the start."""
    for name in names:
        same(text(folder, name), text(START, name), f"{name} has been changed")


def expect_three_at_work(folder):
    """In a run as a team, ends the check unless three teammates have used tools."""
    if os.environ.get("EVAL_MODE") != "team":
        return
    at_work = []
    for transcript in sorted((folder / ".team/transcript").glob("*.jsonl")):
        kinds = [json.loads(line)["kind"] for line in transcript.read_text().splitlines() if line.endswith("}")]
        if transcript.stem != "lead" and "tool_result" in kinds:
            at_work.append(transcript.stem)
    expect(len(at_work) >= 3, f"three members were to do the work, and these did: {', '.join(at_work) or 'none'}")
