"""The alarms of the page on alarms, and the unit of the page on operating, are read by the programs they are for."""

import json
import re
import shutil
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
DAY = 24  # hours: what is asked after days has a sample every hour, all else every minute
PROMTOOL = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="no promtool: Debian's package prometheus has it"
)
PAGES = 'instance="a", job="multilink-pages"'
SERVE = 'instance="a", job="multilink-serve"'
# Alarm -> a series that raises it, one that does not, and when both are asked.
SERIES: dict[str, tuple[dict[str, str], dict[str, str], str]] = {
    "Away": ({f"up{{{SERVE}}}": "0x20"}, {f"up{{{SERVE}}}": "1x20", 'up{job="others"}': "0x20"}, "10m"),
    "Damaged": (
        {'multilink_unreadable{kind="manifest", name="diy"}': "1x5"},
        {'multilink_unreadable{kind="manifest", name="diy"}': "0x5"},
        "1m",
    ),
    # 10 GB that lose 150 MB an hour are gone after three days, the second and third of them ahead; 100 MB leave some.
    "DiskFullInTwoDays": (
        {"multilink_free_bytes": f"10e9-150e6x{DAY + 2}"},
        {"multilink_free_bytes": f"10e9-100e6x{DAY + 2}"},
        f"{DAY + 2}h",
    ),
    # Evaluation begins at the epoch: what was made then is 17 days old after 17 days.
    "VersionIsOld": (
        {'multilink_dataset_made_timestamp_seconds{dataset="diy"}': f"0x{17 * DAY}"},
        {'multilink_dataset_made_timestamp_seconds{dataset="diy"}': f"{2 * 86400}x{17 * DAY}"},
        f"{17 * DAY}h",
    ),
    "ManyFailures": (
        {'multilink_dataset_failed_share{dataset="diy", stage="images"}': "0.11x5"},
        {'multilink_dataset_failed_share{dataset="diy", stage="images"}': "0.1x5"},
        "1m",
    ),
    "DocumentsLost": (
        {'multilink_dataset_documents{dataset="diy"}': f"1000x{DAY} 880x{8 * DAY}"},
        {'multilink_dataset_documents{dataset="diy"}': f"1000x{DAY} 920x{8 * DAY}"},
        f"{8 * DAY + 1}h",
    ),
    "GateRefuses": (
        {'multilink_refusals_since_champion{model="m"}': "3x5"},
        {'multilink_refusals_since_champion{model="m"}': "2x5"},
        "1m",
    ),
    "Errors": (
        {f'multilink_http_requests_total{{{SERVE}, status="503"}}': "0+1x30"},
        {f'multilink_http_requests_total{{{SERVE}, status="404"}}': "0+60x30"},
        "20m",
    ),
    "Slow": (
        {
            f'multilink_http_request_seconds_bucket{{{PAGES}, le="1"}}': "0+90x30",
            f'multilink_http_request_seconds_bucket{{{PAGES}, le="2"}}': "0+100x30",
            f'multilink_http_request_seconds_bucket{{{PAGES}, le="+Inf"}}': "0+100x30",
        },
        {
            f'multilink_http_request_seconds_bucket{{{PAGES}, le="1"}}': "0+99x30",
            f'multilink_http_request_seconds_bucket{{{PAGES}, le="2"}}': "0+100x30",
            f'multilink_http_request_seconds_bucket{{{PAGES}, le="+Inf"}}': "0+100x30",
        },
        "20m",
    ),
    "NearlyFull": (
        {f"multilink_http_requests_open{{{SERVE}}}": "49x20"},
        {f"multilink_http_requests_open{{{SERVE}}}": "48x20"},
        "10m",
    ),
}


def block(page: str, first: str) -> str:
    """Return a block of a page, by its first line."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = [each for each in re.findall(r"(?:^ {4}.*\n|^\n(?= {4}))+", text, re.MULTILINE) if first in each]
    assert len(found) == 1
    return textwrap.dedent(found[0])


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.yml"
    path.write_text(block("how-to/alarms.md", "# rules.yml"), encoding="utf-8")
    return path


def promtool(*arguments: str | Path) -> str:
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def case(series: dict[str, str], when: str, alarm: str, labels: list[dict[str, str]]) -> dict[str, Any]:
    """Return a test of `promtool test rules`: these labels, and no others, have the alarm then."""
    return {
        "interval": f"1{when[-1]}",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [
            {"eval_time": when, "alertname": alarm, "exp_alerts": [{"exp_labels": each} for each in labels]}
        ],
    }


def labels_of(series: str) -> dict[str, str]:
    """Return the labels that an alarm of a series has: histograms lose their bound, what is compared keeps all."""
    return {name: value for name, value in re.findall(r'(\w+)="([^"]*)"', series) if name != "le"}


@PROMTOOL
def test_the_rules_and_the_configuration_are_read(rules: Path) -> None:
    assert f"{len(SERIES)} rules found" in promtool("check", "rules", rules)
    configuration = rules.with_name("prometheus.yml")
    configuration.write_text(block("how-to/alarms.md", "# prometheus.yml"), encoding="utf-8")
    promtool("check", "config", configuration)


@PROMTOOL
def test_each_alarm_is_raised_by_what_it_is_for_and_by_nothing_less(rules: Path) -> None:
    tests: dict[str, list[dict[str, Any]]] = {"m": [], "h": []}
    for alarm, (bad, good, when) in SERIES.items():
        (labels,) = {json.dumps(labels_of(series)) for series in bad}
        tests[when[-1]] += [case(bad, when, alarm, [json.loads(labels)]), case(good, when, alarm, [])]
    for unit, cases in tests.items():
        file = rules.with_name(f"test-{unit}.yml")
        made = {"rule_files": [rules.name], "evaluation_interval": f"1{unit}", "tests": cases}
        file.write_text(json.dumps(made), encoding="utf-8")
        promtool("test", "rules", file)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_the_unit_is_read_by_systemd(tmp_path: Path) -> None:
    """The unit names a program and a folder of the reader's machine: one of this machine stands for them."""
    program, folder = shutil.which("true") or "/bin/true", str(tmp_path)
    unit = block("operating.md", "[Service]")
    unit = unit.replace("/srv/multilink/.venv/bin/multilink", program).replace("/srv/multilink", folder)
    path = tmp_path / "multilink.service"
    path.write_text(unit, encoding="utf-8")
    done = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "multilink.service" not in done.stderr, done.stderr
