"""Where Ray Train keeps its checkpoints: a folder of a lake as a file system of pyarrow, which is what Ray takes."""

from typing import Any

import pyarrow.fs as pafs

from schemas.lake import Folder
from schemas.stores import ATTEMPTS, s3_server, split_uri


class _PatientS3(pafs.S3FileSystem):
    """S3 that waits for a server that is away, in every process that it is sent to, too."""

    def __init__(self, **options: Any) -> None:
        self._own = options
        super().__init__(
            retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
            allow_delayed_open=True,  # small files: one request; one in parts may be refused
            **options,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _patient, (self._own,)


def _patient(options: dict[str, Any]) -> _PatientS3:
    return _PatientS3(**options)


def storage_of(folder: Folder) -> tuple[pafs.FileSystem, str]:
    """Return the file system of a folder, and the path in it."""
    if folder.local is not None:
        return pafs.LocalFileSystem(), str(folder.local)
    scheme, bucket, key, options = split_uri(folder.uri)
    if scheme != "s3":
        filesystem, path = pafs.FileSystem.from_uri(folder.uri)
        return filesystem, path
    return _PatientS3(**s3_server(options, bucket)), f"{bucket}/{key}"
