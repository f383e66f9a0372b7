"""The first module that a server of forks imports (`set_forkserver_preload`): what comes after it takes less time."""

from schemas.collector import collect_rarely

collect_rarely()
