"""`multilink open`: where the demo's report and links are, in the browser of a screen where there is one."""

from pathlib import Path

from forked import clean_environment, start


def test_a_file_is_opened_where_there_is_a_screen_and_named_elsewhere(tmp_path: Path) -> None:
    path, opened = tmp_path / "demo" / "report" / "index.html", tmp_path / "opened"
    path.parent.mkdir(parents=True)
    path.write_text("report")
    (tmp_path / "multilink.toml").write_text('lake = "demo/lake"\n')
    (tmp_path / "browser").write_text(f'#!/bin/sh\necho "$1" >> {opened}\n')
    (tmp_path / "browser").chmod(0o755)
    screen = clean_environment(DISPLAY=":99", BROWSER=f"{tmp_path}/browser %s")
    without = {name: value for name, value in screen.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
    named = start("open", folder=tmp_path, environment=without).finish()
    assert (named.status, named.out) == (0, f"{path.as_uri()}\n") and not opened.exists()
    shown = start("open", "report", "--json", folder=tmp_path, environment=screen).finish()
    assert shown.json == {"report": path.as_uri()} and opened.read_text() == f"{path.as_uri()}\n"
    missing = start("open", "links", folder=tmp_path, environment=without).finish()
    assert missing.status == 2 and "linked/index.html" in missing.err
