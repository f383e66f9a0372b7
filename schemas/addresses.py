"""How an address is shown: without the user and the password that it may hold.

What a command prints goes through here where it is printed: errors, progress, summaries and their JSON. Tags and
statements that name another store hold its address as it is shown.
"""

import re

_IN_ADDRESS = re.compile(r"://[^/?#@\s'\"]*:[^/?#\s'\"]*@")


def without_passwords(text: str) -> str:
    """Return a text in which no address has a user and a password: `http://***@host`."""
    return _IN_ADDRESS.sub("://***@", text)


def as_arguments(option: str, address: str) -> tuple[str, ...]:
    """Return an option with its address for a process's command; none where the address has a user or a password.

    Then the environment names it: arguments are in lists of processes and of jobs, and in manifests.
    """
    return (option, address) if address == without_passwords(address) else ()
