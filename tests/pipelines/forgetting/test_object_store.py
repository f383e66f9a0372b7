"""A lake on S3 forgets as one on a file system does."""

import pytest
from lake_bytes import bytes_of, rows_of

from pipelines.forgetting.forget import forget
from pipelines.sources.takedowns import parse_takedowns
from schemas.lake import Lake
from schemas.manifest import read_manifest, verify


@pytest.fixture
def far(lake: Lake, object_store: str) -> Lake:
    """The same lake on a server of S3."""
    copied = Lake.at(f"s3://lake/far?{object_store}")
    for path in lake.root.files():
        copied.root.write(path, lake.root.read(path))
    return copied


@pytest.mark.trial
def test_a_document_is_nowhere_on_an_object_store(far: Lake) -> None:
    row = max(rows_of(far, str(far.latest("diy")), "documents"), key=lambda row: (len(row["images"]), row["id"]))
    needles = [row["id"].encode(), *(image["hash"].encode() for image in row["images"])]
    needles += [image["source"].encode() for image in row["images"]]
    needles += [each["text"].encode() for each in row["sentences"] if len(each["text"]) > 25]
    held = b"\n".join(bytes_of(far).values())
    assert all(needle in held for needle in needles)
    forget(far, parse_takedowns([f"id:{row['id']}".encode()], name="list"), dry_run=False, say=lambda _: None)
    left = b"\n".join(bytes_of(far).values())
    assert not any(needle in left for needle in needles)
    for version in far.versions("diy"):
        assert list(verify(*read_manifest(far, f"diy@{version}"))) == []
