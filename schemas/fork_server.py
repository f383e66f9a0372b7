"""The first module that a server of forks imports (`set_forkserver_preload`), for the sake of those that follow."""

from schemas.collector import collect_rarely

collect_rarely()
