"""What holds for every command that there is: the table in `apes.cli.main` is gone through, so new ones are covered.

Help by -h and --help, without colours in a pipe, within 80 columns; and whatever number is beyond reason, for whichever
option, is refused in one line, or answered: it is never a traceback, and never keeps anybody waiting.
"""

import re
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
import typer
from typer.testing import CliRunner

from apes.cli.main import GROUPS, app

ROWS = [(group, name) for group, (_, rows) in GROUPS.items() for name, _, _ in rows]
NAMES = [f"{group} {name}".strip() for group, name in ROWS]
# These run until they are stopped, and answer nothing on stdout.
SERVERS = {"vault", "courier", "shuffler", "superlink", "page"}
# Small enough that whatever is not refused is soon done.
SMALL = {
    "train": "--users 40 --rounds 1 --preset paper",
    "tune": "--users 40 --runs 8 --data qmnist --data-dir nowhere",
    "account": "--users 40 --dimensions 3 --rounds 2",
    "advise": "--users 40 --dimensions 3 --rounds 1 --target-epsilon 50",
    "plan": "--target-epsilon 1 --delta 1e-5 --solve rounds --users 40 --dimensions 3",
    "audit": "--users 3 --dimensions 2 --trials 100 --budgets constant:1",
    "poison": "--users 40 --rounds 1 --preset paper --liars 2",
    "converge": "--users 8 --dimensions 2 --rounds 2 --seeds 1",
    "federation init": "new --devices 4 --preset paper --allow-no-protection --no-comparison",
}
BEYOND = ("1" + "0" * 12, "-1", "inf", "1e300", "1e-300", "", "\u0663")
# Far more than any of it takes: what hangs is to fail, and not to wait for ever.
SECONDS = 600


def loaded(group, name):
    return typer.main.get_group(GROUPS[group][0]).commands[name].loaded()


def numeric(group, name):
    """Options of a command that are read as numbers."""
    options = [each for each in loaded(group, name).params if each.param_type_name == "option"]
    return [each for each in options if each.type.name in ("integer", "float")]


NUMBERS = [(group, name, option.opts[0], option.type.name) for group, name in ROWS for option in numeric(group, name)]
# Flower tries an address of this machine when it is imported; the others are refused after some work.
LEVELS = [
    pytest.param(*row, marks=pytest.mark.service)
    if row[0] == "federation" or row[1:3] in (("account", "--rounds"), ("train", "--threads"))
    else row
    for row in NUMBERS
]
ANSWERED = [row for row in NUMBERS if row[1] in ("audit", "converge", "account")]
# An account takes longest.
AS_SERVICE = [row for row in ANSWERED if row[1] == "account" and row[2] in ("--users", "--norm")]
AS_UNIT = [row for row in ANSWERED if row[1] != "account" and row[2] in ("--dimensions", "--users")]
WITH_ALL = [
    row
    if row in AS_UNIT
    else pytest.param(*row, marks=pytest.mark.service if row in AS_SERVICE else pytest.mark.exhaustive)
    for row in ANSWERED
]


def needed(group, name, but, given=None):
    """Something for every parameter that must be given, where it does not matter what; for one this value, if any."""
    words = []
    for each in loaded(group, name).params:
        if but in each.opts:
            words += [] if given is None else [given]
        elif each.required:
            value = {"integer": "3", "float": "0.5"}.get(each.type.name, "nowhere")
            words += [each.opts[0], value] if each.param_type_name == "option" else [value]
    return words


@contextmanager
def in_time():
    def late(*_):
        raise AssertionError(f"it took more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def called(arguments, **environment):
    with in_time():
        return CliRunner(env={"COLUMNS": "80", "TERMINAL_WIDTH": None, **environment}).invoke(app, arguments)


@pytest.mark.service
@pytest.mark.parametrize(("group", "name"), ROWS, ids=NAMES)
def test_help(group, name):
    words = [*group.split(), name]
    short, long = (called([*words, asked]) for asked in ("-h", "--help"))
    assert (short.exit_code, short.stderr) == (0, "")
    assert short.stdout == long.stdout
    assert max(map(len, short.stdout.splitlines())) <= 80
    assert "\x1b" not in short.stdout
    # No word of it is cut.
    assert "\u2026" not in short.stdout


@pytest.mark.parametrize(("group", "name"), ROWS, ids=NAMES)
def test_help_says_what_everything_is_for(group, name):
    """Of positional arguments, too, whatever version of click there is; and nothing of it is taken for markup."""
    wide = called([*group.split(), name, "-h"], COLUMNS="1000").stdout
    for each in loaded(group, name).params:
        assert each.help, f"{each.name} does not say what it is for"
        assert " ".join(each.help.split()) in wide


@pytest.mark.parametrize(("group", "name"), ROWS, ids=NAMES)
def test_every_answer_is_to_be_had_as_json(group, name):
    options = {option for each in loaded(group, name).params for option in each.opts}
    assert "--json" in options or name in SERVERS


def called_with(group, name, option, value):
    """Call a command that would soon be done, but for one option."""
    words = f"{group} {name}".split()
    small = SMALL.get(" ".join(words))
    base = needed(group, name, option) if small is None else small.split()
    if option in base:
        place = base.index(option)
        base = base[:place] + base[place + 2 :]
    if not option.startswith("-"):
        # An argument, which has a place and no name.
        return called([*words, *needed(group, name, option, value)])
    return called([*words, *base, option, value])


def said_by(done):
    """The line in which a command was refused; nothing if it was not, or its use was explained."""
    return next((line for line in done.stderr.splitlines() if line.startswith("apes: ")), "")


def python_names(group, name):
    """Parameters of a command as Python has them, and as the library has what becomes of an option."""
    params = loaded(group, name).params
    return {each.name for each in params} | {each.opts[0].lstrip("-").replace("-", "_") for each in params}


def check_speaks_of_options(line, names):
    """What is wrong is said of options, as they are given; in a text that is quoted there may be anything."""
    assert "None" not in line
    assert "PosixPath" not in line
    said = re.sub(r"'[^']*'|\"[^\"]*\"", "''", line.removeprefix("apes: "))
    for name in names:
        if "_" in name:
            assert not re.search(rf"(?<![\w.-]){name}\b", said), (name, line)
        assert not re.match(rf"([\w-]+(, | or | and ))*{name}(\[.*?\])?((, | or | and )[\w-]+)* must\b", said), (
            name,
            line,
        )


def check_refused(done):
    assert isinstance(done.exception, SystemExit), done.exception
    assert (done.exit_code, done.stdout) == (2, "")
    refusals = [line for line in done.stderr.splitlines() if line.startswith("apes: ")]
    assert len(refusals) == 1 or "Usage: " in done.stderr, done.stderr


@pytest.mark.service
@pytest.mark.parametrize(("group", "name", "option", "kind"), LEVELS, ids=lambda value: value or "apes")
def test_a_number_beyond_reason_is_refused_in_one_line(group, name, option, kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    beyond = called_with(group, name, option, "1" + "0" * 30 if kind == "integer" else "nan")
    check_refused(beyond)
    check_speaks_of_options(said_by(beyond), python_names(group, name))
    check_refused(called_with(group, name, option, "x"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("group", "name", "option", "kind"), WITH_ALL, ids=lambda value: value or "apes")
def test_whatever_number_it_is_there_is_an_answer_or_a_line(group, name, option, kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for value in BEYOND:
        done = called_with(group, name, option, value)
        said = f"{name} {option} {value}: {done.exit_code}, {done.stderr}"
        assert done.exception is None or isinstance(done.exception, SystemExit), said
        assert done.exit_code in (0, 1, 2), said
        if done.exit_code == 2:
            check_refused(done)


# By what an option takes.
WRONG = {
    "text": ("", "no such thing", "nowhere/at/all", "a=b,a=c", "file:nowhere"),
    "path": ("", ".", "nowhere/at/all"),
}


def wordy(group, name):
    """Options and arguments of a command that are read as texts or places."""
    return [each for each in loaded(group, name).params if each.type.name in ("text", "path")]


TEXTS = [(group, name, each.opts[0], each.type.name) for group, name in ROWS for each in wordy(group, name)]
# What `train` has too is tried there with every value.
OF_TRAIN = {option for _, name, option, _ in TEXTS if name == "train"}


def test_every_option_with_a_value_is_tried():
    """Those that are read as numbers, and those that are read as texts: there is no third kind."""
    tried = {row[:3] for row in (*NUMBERS, *TEXTS)}
    for group, name in ROWS:
        for each in loaded(group, name).params:
            assert each.type.name == "boolean" or (group, name, each.opts[0]) in tried, each.opts


@pytest.mark.service
@pytest.mark.parametrize(("group", "name", "option", "kind"), TEXTS, ids=lambda value: value or "apes")
def test_what_is_wrong_with_a_text_is_said_of_its_option(group, name, option, kind, tmp_path, monkeypatch):
    """Or of another option, where what was given asks for one."""
    monkeypatch.chdir(tmp_path)
    is_tried_before = name != "train" and option in OF_TRAIN
    for value in WRONG[kind][1:2] if is_tried_before else WRONG[kind]:
        done = called_with(group, name, option, value)
        assert done.exception is None or isinstance(done.exception, SystemExit), (value, done.exception)
        check_speaks_of_options(said_by(done), python_names(group, name))


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (["--user-column", "id"], ["--label-column", "--budget-column", "--budgets"]),
        (["--budgets", "constant:1"], ["--user-column", "--label-column"]),
        (["--user-column", "id", "--label-column", "y"], ["--budget-column", "--budgets"]),
        (
            ["--user-column", "id", "--label-column", "y", "--budget-column", "wish", "--bounds", "age=0:9"],
            ["--budget-levels"],
        ),
        (["--user-column", "id", "--label-column", "y", "--budgets", "1:100%", "--budget-levels", "a=1"], []),
    ],
)
def test_what_is_missing_is_named(words, options, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"{number},{number % 2},{'uv'[number % 2]},high" for number in range(4)]
    (tmp_path / "people.csv").write_text("\n".join(["id,age,y,wish", *rows]))
    done = called(["train", "--data", "people.csv", *words])
    check_refused(done)
    check_speaks_of_options(said_by(done), python_names("", "train"))
    given = [word for word in words if word.startswith("--")]
    assert [option for option in options if option not in said_by(done)] == []
    assert [option for option in given if option in said_by(done)] == []
    if not options:
        assert "--budget-column must name the column that the levels are in" in said_by(done)


def test_a_file_that_is_not_there_is_said_before_anything_is_asked_about_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    for data, said in (
        ("nope.csv", "there is no file"),
        ("no/such/folder/*.parquet", "has no .parquet files"),
        ("empty", "has no .parquet files"),
    ):
        done = called(["train", "--data", data])
        check_refused(done)
        assert said in said_by(done), done.stderr
        assert "column" not in said_by(done)


WORDS = [["-h"], ["account", "--users", "x"], ["account", "--users", "0"], ["trian"]]


def check_plain(out, err):
    assert "\x1b" not in out + err
    assert "Traceback" not in err
    assert max(map(len, out.splitlines()), default=0) <= 80


@pytest.mark.parametrize("words", WORDS)
def test_no_colours_where_none_are_wanted(words):
    done = called(words, NO_COLOR="1")
    check_plain(done.stdout, done.stderr)


@pytest.mark.process
@pytest.mark.parametrize("words", WORDS[:2])
def test_no_colours_in_a_pipe(words):
    """With NO_COLOR not even if something asks for a terminal's."""
    command = [sys.executable, "-m", "apes", *words]
    done = subprocess.run(command, capture_output=True, text=True, env={"PATH": "", "NO_COLOR": "1", "COLUMNS": "80"})
    check_plain(done.stdout, done.stderr)
