"""No address that is shown has a user or a password."""

import json

import pytest

from orchestration.console import Console
from schemas.messages import GateError, NotFoundError, as_arguments, without_passwords

SHOWN = {
    "postgresql://mlflow:secret@db:5432/mlflow": "postgresql://***@db:5432/mlflow",
    "http://ann:p%40s@host": "http://***@host",
    "s3://key:secret@bucket/lake?region=eu": "s3://***@bucket/lake?region=eu",
    "http://bob:SEC@RET@host:5000/x": "http://***@host:5000/x",
    "postgresql+psycopg://u:p%40@db:5432/mlflow": "postgresql+psycopg://***@db:5432/mlflow",
    "http://host:5000/a@b": "http://host:5000/a@b",
    "https://token-of-ann@host/api": "https://***@host/api",  # a token stands in the user's place
    "http://ann:a@b@host/": "http://***@host/",
    "postgresql://db/mlflow?user=ann&password=secret": "postgresql://db/mlflow?user=ann&password=***",
    "s3://bucket/lake?secret_key=abc&region=eu": "s3://bucket/lake?secret_key=***&region=eu",
    "https://host/x.jpg?X-Amz-Security-Token=abc": "https://host/x.jpg?X-Amz-Security-Token=***",
    "models:/linker@champion": "models:/linker@champion",
    "sqlite:////tmp/a@b/mlflow.db": "sqlite:////tmp/a@b/mlflow.db",
    "mail ann@example.org": "mail ann@example.org",
}


@pytest.mark.parametrize(("address", "shown"), SHOWN.items())
def test_user_and_password_are_left_out_wherever_an_address_is_shown(
    address: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert without_passwords(f"in {address}; two: '{address}'") == f"in {shown}; two: '{shown}'"
    assert str(NotFoundError(f"no model in {address}")) == f"no model in {shown}"
    assert as_arguments("--to", address) == (() if address != shown else ("--to", address))
    console = Console(is_json=True)
    console.say(f"asking {address}")
    console.summarise([f"run in {address}"], {"tracking_uri": address})
    printed = capsys.readouterr()
    assert printed.err.endswith(f"asking {shown}\n")
    lines = printed.out.splitlines()
    assert lines[0] == f"run in {shown}" and json.loads(lines[1]) == {"tracking_uri": shown}
    assert GateError(3).args == (3,)
