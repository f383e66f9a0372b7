"""The project file, `multilink.toml` in the working folder: where data, runs and models are, and which keys count.

    lake = "data"
    tracking_uri = "sqlite:///mlflow.db"
    verify = true                       # link, index, search and serve only with champions that verify
    trust = "keys"                      # public keys: a file, or a folder of *.pub.pem
    key = "keys/newsroom.pem"           # signs what is promoted here

An option of a command wins over the environment, the environment over the file. Paths are relative to the file. The
settings of trust hold for programs, too: `setting` reads them where they are used.
"""

import os
import shlex
import tomllib
from collections.abc import Mapping
from pathlib import Path

from schemas.messages import ConfigError, without_passwords

FILE = "multilink.toml"
VERIFY, TRUST, KEY = "verify", "trust", "key"
VARIABLES = {
    "lake": "MULTILINK_LAKE",
    "tracking_uri": "MLFLOW_TRACKING_URI",
    VERIFY: "MULTILINK_VERIFY",
    TRUST: "MULTILINK_TRUST",
    KEY: "MULTILINK_KEY",
}


def read_project(directory: Path) -> dict[str, str | bool]:
    """Return the settings of a folder's project file; none where there is no file.

    Raises:
        ConfigError: the file is no TOML, or has a key that is not known.
    """
    try:
        values = tomllib.loads((directory / FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise ConfigError(f"{FILE}: expected TOML: {problem}") from problem
    for name, value in values.items():
        if name not in VARIABLES or not isinstance(value, bool if name == VERIFY else str):
            expected = "true or false" if name == VERIFY else f"text for one of {', '.join(VARIABLES)}"
            raise ConfigError(f"{FILE}: {name}: expected {expected}")
    return values


def setting(name: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return a setting of the environment, else of the project file of the working folder; empty: neither has it.

    Raises:
        ConfigError: the file cannot be read.
    """
    value = environment.get(VARIABLES[name]) or read_project(Path.cwd()).get(name, "")
    return str(value).lower() if isinstance(value, bool) else value


def command(*words: str, tracking: str | None) -> str:
    """Return a command as it is typed into a shell, with the address of MLflow where it is not the project file's.

    >>> command("approve", "--model", "my model", tracking="http://mlflow:5000")
    "multilink approve --model 'my model' --tracking-uri http://mlflow:5000"
    """
    is_set = tracking in (None, read_project(Path.cwd()).get("tracking_uri"))  # MLflow itself changes the variable
    store = () if is_set else ("--tracking-uri", without_passwords(tracking or ""))
    return shlex.join(("multilink", *words, *store))
