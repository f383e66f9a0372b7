"""The store behind a URI: its file system, opened once a process, and S3's conditional requests.

A store that is away for a minute is waited for: a request to S3 is made again, with growing pauses. What a request to
S3 needs beside its bucket comes from the environment, as for every AWS program (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL,
AWS_DEFAULT_REGION, profiles ...), or stands in the URI (`s3://bucket/lake?region=...&endpoint_override=...&scheme=...`).
A URI is written into logs, pages and tags, so a key in it is refused.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Any, BinaryIO
from urllib.parse import parse_qsl, urlsplit

import pyarrow.fs as pafs

from schemas.errors import UsageError

S3 = "s3://"
S3_ATTEMPTS = 12  # pauses grow to 20 s: together more than a minute
_IN_PIECES = 64 << 20  # bytes: of a longer object, each
_OPTIONS = frozenset({"endpoint_override", "region", "scheme"})


def open_store(uri: str) -> tuple[pafs.FileSystem, str]:
    """Return the file system of a URI, and the path in it.

    Raises:
        UsageError: an S3 URI holds a key, or an option that is not known.
    """
    if not uri.startswith(S3):
        return _by_uri(uri)
    bucket, key, options = _split(uri)
    return _s3(bucket, options), f"{bucket}/{key}".rstrip("/")


class _PatientS3(pafs.S3FileSystem):
    """S3 that waits for a server that is away, in every process that it is sent to, too."""

    def __init__(self, **options: Any) -> None:
        self._own = options
        super().__init__(
            retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=S3_ATTEMPTS),
            allow_delayed_open=True,  # Ray Train's small files: one request; one in parts may be refused
            **options,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _patient, (self._own,)


def _patient(options: dict[str, Any]) -> _PatientS3:
    return _PatientS3(**options)


@cache
def _s3(bucket: str, options: str) -> pafs.FileSystem:
    where = _where(options)
    if where.get("region") is None and where.get("endpoint_override") is None:
        where["region"] = pafs.resolve_s3_region(bucket)
    return _PatientS3(**where)


@cache
def _by_uri(uri: str) -> tuple[pafs.FileSystem, str]:
    filesystem, path = pafs.FileSystem.from_uri(uri)
    return filesystem, path.rstrip("/")


def settle_object(uri: str, name: str, data: bytes) -> None:
    """Give an object below an S3 URI its content, by requests that hold only for what was read before.

    So a request that arrives late undoes nothing, and of equal contents one is written.
    """
    while True:
        found = read_object(uri, name)
        if (found and found[0] == data) or write_object(uri, name, data, tag=found[1] if found else None):
            return


def read_object(uri: str, name: str) -> tuple[bytes, str] | None:
    """Return the content of an object below an S3 URI and the tag of that content, or None where there is none."""
    client, target = _target(uri, name)
    with _refusals(client):
        try:
            data, told = _get(client, target)
        except client.exceptions.NoSuchKey:
            return None
        return data, str(told["ETag"])


def read_piece(uri: str, name: str, wanted: str) -> tuple[bytes, int]:
    """Return bytes of an object below an S3 URI, and how many it has in all.

    Args:
        uri: of its folder.
        name: of the object.
        wanted: as HTTP says it: `FIRST-LAST`, or `-COUNT` for its end.

    Raises:
        FileNotFoundError: there is no such object.
    """
    client, target = _target(uri, name)
    with _refusals(client):
        try:
            data, told = _get(client, target | {"Range": f"bytes={wanted}"})
        except client.exceptions.NoSuchKey as problem:
            raise FileNotFoundError(f"{uri}/{name}: there is no such object") from problem
        return data, int(told["ContentRange"].rpartition("/")[2])


def _get(client: Any, wanted: Mapping[str, str]) -> tuple[bytes, Mapping[str, Any]]:
    """Return the bytes of an object, and what its answer says; boto3 does not ask again for one that breaks off."""
    from botocore.exceptions import HTTPClientError, IncompleteReadError

    attempts = 0
    while True:
        told = client.get_object(**wanted)
        try:
            return told["Body"].read(), told
        except (HTTPClientError, IncompleteReadError):
            attempts += 1
            if attempts == S3_ATTEMPTS:
                raise


def write_object(uri: str, name: str, data: bytes, *, tag: str | None) -> str | None:
    """Write an object below an S3 URI where it still has a tag; return its new one, None where it has it no more.

    With None for a tag it is written where there is none (`If-None-Match`; `If-Match` for a tag).
    """
    client, target = _target(uri, name)
    condition = {"IfMatch": tag} if tag else {"IfNoneMatch": "*"}
    with _refusals(client):
        try:
            return str(client.put_object(**target, Body=data, **condition)["ETag"])
        except client.exceptions.ClientError as refusal:
            if refusal.response["ResponseMetadata"]["HTTPStatusCode"] not in (404, 409, 412):
                raise
            return None


def upload_object(uri: str, name: str, stream: BinaryIO) -> None:
    """Write an object below an S3 URI from a stream: in one request, a large one in pieces that are then made one."""
    from boto3.s3.transfer import TransferConfig

    client, target = _target(uri, name)
    settings = TransferConfig(multipart_threshold=_IN_PIECES, multipart_chunksize=_IN_PIECES, use_threads=False)
    with _refusals(client):
        client.upload_fileobj(stream, *target.values(), Config=settings)


def delete_object(uri: str, name: str) -> None:
    """Delete an object below an S3 URI; pyarrow would look for its folder, and leave an empty object in its place."""
    client, target = _target(uri, name)
    with _refusals(client):
        client.delete_object(**target)


@contextmanager
def _refusals(client: Any) -> Iterator[None]:
    """Raise what a store refuses, and that it is away, as an `OSError`, as pyarrow does."""
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError

    try:
        yield
    except (client.exceptions.ClientError, BotoCoreError, Boto3Error) as refusal:
        raise OSError(str(refusal)) from refusal


@cache
def has_client() -> bool:
    """Return whether S3 can be asked for what pyarrow cannot."""
    return find_spec("boto3") is not None


def _target(uri: str, name: str) -> tuple[Any, dict[str, str]]:
    """Return a client of S3 for the requests that pyarrow cannot make, and what names an object below a URI."""
    bucket, key, options = _split(uri)
    return _client(options), {"Bucket": bucket, "Key": f"{key}/{name}"}


@cache
def _client(options: str) -> Any:
    try:
        import boto3
        from botocore.config import Config
    except ModuleNotFoundError as problem:
        raise UsageError("a lake on S3 needs boto3: install multilink with the extra server") from problem
    where = _where(options)
    scheme, endpoint = where.get("scheme", "https"), where.get("endpoint_override")
    return boto3.client(
        "s3",
        endpoint_url=f"{scheme}://{endpoint}" if endpoint else None,
        region_name=where.get("region"),
        config=Config(retries={"mode": "standard", "total_max_attempts": S3_ATTEMPTS}),
    )


def _split(uri: str) -> tuple[str, str, str]:
    """Return the bucket, key and options of an S3 URI."""
    parts = urlsplit(uri)
    if "@" in parts.netloc:
        where = f"s3://...@{parts.hostname}{parts.path}"
        raise UsageError(f"{where}: a URI holds no key; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
    return parts.netloc, parts.path.strip("/"), parts.query


def _where(options: str) -> dict[str, str]:
    """Return where the server is: as the options of a URI say, else as the environment does."""
    given = dict(parse_qsl(options))
    unknown = sorted(given.keys() - _OPTIONS)
    if unknown:
        raise UsageError(f"s3: unknown option {unknown[0]!r}; expected one of {', '.join(sorted(_OPTIONS))}")
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint and "endpoint_override" not in given:
        parts = urlsplit(endpoint)
        given |= {"scheme": parts.scheme, "endpoint_override": parts.netloc}
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    own = {"region": region} if region else {"region": "us-east-1"} if "endpoint_override" in given else {}
    return own | given
