"""docs/ against the code: metrics, the fields of logs, and the variables of services."""

import ast
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from llguidance import LLMatcher
from typer.main import get_command

from antiphon.cli.commands.forms import tools_of
from antiphon.cli.common.config import Settings
from antiphon.cli.main import app
from model_host.batching import counters as host
from model_host.grammar_engine import check
from model_host.io.config import HostConfig
from model_host.kv.page_pool import PoolCounters
from replica.ids import PublicKey
from replica.measures import Measure
from spec import tables
from syncd import measures as hub
from syncd.hub import Hub
from syncd.io import HubConfig
from syncd.policy import Policy

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "operating.md").read_text()
METRIC_ROW = re.compile(r"^\| `(antiphon_\w+)` \| (\w+) \| (\w*) ?\| (.+) \|$", re.MULTILINE)
ID_FIELDS = {"conversation", "request", "entry", "key", "blob"}
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
LOGS = re.compile(rf"log\.({'|'.join(sorted(LEVELS))})\(")
DAEMONS = ("model_host", "syncd", "replica")


def host_measures() -> list[Measure]:
    tiers = (host.Tier("memory", 1, 0, 1), host.Tier("disk", 1, 0))
    state = host.EngineState(host.BatchCounters(), PoolCounters(), tiers, 0, 0, 0, is_idle=True)
    return host.measures(
        state, host.AnswerCounters(), running=0, waiting=0, conversations={}, unstored={},
        limits=(("memory", 1),), for_operator=True,
    )  # fmt: skip


def hub_measures() -> list[Measure]:
    return hub.measures(Hub(PublicKey(bytes(32)), Policy()), hub.HubCounters())


def test_the_tables_list_the_metrics_of_the_code_in_their_order() -> None:
    wanted = [(m.name, str(m.kind), m.label, m.help) for m in (*host_measures(), *hub_measures())]
    assert METRIC_ROW.findall(TEXT) == wanted


@pytest.mark.parametrize("measure", [*host_measures(), *hub_measures()], ids=lambda m: m.name)
def test_names_follow_the_conventions_of_prometheus(measure: Measure) -> None:
    assert re.fullmatch(r"antiphon_(host|hub)(_[a-z]+)+", measure.name)
    assert measure.name.endswith("_total") == (measure.kind == "counter")
    assert not re.search(r"_(ms|us|kb|mb|count|sum|bucket)(_|$)", measure.name)
    assert measure.help.endswith(".")


# --- errors ---------------------------------------------------------------------------------

ERRORS = (ROOT / "docs" / "errors.md").read_text()
STEP = re.compile(r"`antiphon ([a-z]+)(?: ([a-z]+))?[^`]*`")


def test_the_table_of_errors_has_reasons_that_can_be_raised_and_commands_that_exist() -> None:
    rows = re.findall(r"^\| ([A-Z_]+) \| (.+) \| (.+) \|$", ERRORS, re.MULTILINE)
    reasons = [reason for reason, _, _ in rows]
    assert {"NO_HOST", "HOST_MISSING"} < {*reasons} <= {kind.reason for kind in tables.classes()}
    assert len({*reasons}) == len(reasons)
    known = get_command(app)
    for named, below in STEP.findall(ERRORS):
        command = known.commands[named]
        assert not below or not hasattr(command, "commands") or below in command.commands


# --- services -------------------------------------------------------------------------------

RUNNING = (ROOT / "docs" / "running.md").read_text()
SETTINGS = (HubConfig, HostConfig, Settings)
UNIT = re.compile(r"^```ini\n# \S+/antiphon-(\w+)\.service\n(.*?)^```", re.DOTALL | re.MULTILINE)
UNITS = {
    name: dict(
        word.split("=", 1)
        for line in re.findall(r"^Environment=(.+)$", unit, re.MULTILINE)
        for word in shlex.split(line)
    )
    for name, unit in UNIT.findall(RUNNING)
}
"""The variables of each service, read as systemd reads quotes."""


def test_the_services_set_variables_that_are_read() -> None:
    read = {"ANTIPHON_CACHE_DIR"}
    for settings in SETTINGS:
        prefix = settings.model_config["env_prefix"]
        read |= {f"{prefix}{name}".upper() for name in settings.model_fields}
    named = [name for unit in UNITS.values() for name in unit]
    assert len(named) > 4
    assert set(named) <= read


def test_the_hub_service_vouches_for_the_host_whose_key_is_filled_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without it, clients of the two services get NO_HOST."""
    monkeypatch.chdir(tmp_path)
    for name, value in UNITS["hub"].items():
        monkeypatch.setenv(name, value.replace("KEY", "ab" * 32))
    assert HubConfig().host_keys == ["ab" * 32]


# --- installation ---------------------------------------------------------------------------


def test_every_page_installs_the_torch_of_the_index_for_cpus() -> None:
    """What PyPI has for Linux brings CUDA, several gigabytes."""
    made = (ROOT / "Makefile").read_text()
    (index,) = re.findall(r"^TORCH_INDEX \?= (\S+)$", made, re.MULTILINE)
    options = "--no-deps --extra-index-url "
    assert f"{options}$(TORCH_INDEX) torch==" in made
    pages = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    lines = [line for page in pages for line in page.read_text().splitlines() if "torch==" in line]
    assert len(lines) > 2
    assert [line for line in lines if f"{options}{index} torch==" not in line] == []


# --- files of commands ----------------------------------------------------------------------

READS = re.compile(r"--(json-schema|lark|tools) (\S+)")
ONLY_LOOKS = (
    'antiphon() { for word; do case $word in *.json | *.lark) test -s "$word";; esac; done; }'
)
"""In place of the command: it fails where a file that it is given is not there yet."""


@pytest.mark.parametrize(("page", "options"), [("start", 2), ("agents", 1)])
def test_a_page_makes_the_files_that_its_commands_read(
    page: str, options: int, tmp_path: Path
) -> None:
    blocks = re.findall(
        r"^```sh\n(.*?)^```", (ROOT / "docs" / f"{page}.md").read_text(), re.DOTALL | re.MULTILINE
    )
    (block,) = [block for block in blocks if READS.search(block)]
    subprocess.run(["sh", "-euc", f"{ONLY_LOOKS}\n{block}"], cwd=tmp_path, check=True)
    read = READS.findall(block)
    assert len(read) == options
    for option, name in read:
        text = (tmp_path / name).read_text()
        match option:
            case "tools":
                assert tools_of(tmp_path / name)
            case "lark":
                assert check(LLMatcher.grammar_from_lark(text)) == ""
            case "json-schema":
                assert check(LLMatcher.grammar_from_json_schema(text)) == ""


# --- logs -----------------------------------------------------------------------------------


def log_calls() -> list[tuple[str, ast.Call]]:
    """Return the calls that log, in the packages of the daemons."""
    found = []
    for package in DAEMONS:
        for path in sorted((ROOT / package).rglob("*.py")):
            text = path.read_text()
            if not LOGS.search(text):
                continue
            for node in ast.walk(ast.parse(text)):
                match node:
                    case ast.Call(ast.Attribute(ast.Name("log" | "_log"), level)) if (
                        level in LEVELS
                    ):
                        found.append((f"{path.relative_to(ROOT)}:{node.lineno}", node))
    return found


def fields_of(call: ast.Call) -> dict[str, ast.expr]:
    """Return the fields of a log line, by name; those of stdlib loggers stand in `extra`."""
    fields = {}
    for keyword in call.keywords:
        match keyword:
            case ast.keyword("extra", ast.Dict(keys, values)):
                pairs = zip(keys, values, strict=True)
                fields |= {ast.literal_eval(name): value for name, value in pairs if name}
            case ast.keyword(str(name), value):
                fields[name] = value
    return fields


def test_a_log_line_has_a_fixed_event_and_fields_of_the_table() -> None:
    calls = log_calls()
    assert len(calls) > 30
    documented = set(re.findall(r"`(\w+)`", TEXT.partition("| field | meaning |")[2]))
    for where, call in calls:
        (event,) = call.args
        assert isinstance(event, ast.Constant), f"{where}: an event's text never varies"
        assert re.fullmatch(r"[a-z][a-zA-Z' ,-]+", event.value), f"{where}: {event.value}"
        for name, value in fields_of(call).items():
            assert name in documented, f"{where}: {name}"
            if name in ID_FIELDS:
                shown = ast.unparse(value)
                assert shown.startswith("short("), f"{where}: {name} is shown by its first digits"
