"""Requests of `multilink build` to a lake on S3: of a first build, and of one after one in a hundred documents is new.

    python -m benchmarks.object_store [--documents 200] [--images 5] [--new 2] [--json]

They are counted in the log of the server (versitygw, built once by Go). Targets: under 40 for
1,000 images of a first build, under 10 of a rebuild. Beginning and ending a build take the same requests whatever its
size, so that few images cost more each than many. Found on 2026-11-26 with 10,000 images of 64 px in 2,000 documents:
13 for 1,000 images of a first build (126 in all), and 10 of a rebuild with 20 documents more (104 in all: 47 writes, 38
reads, 13 listings, 3 looks at one object, 3 deletions). One listing each is that of workers that look anew at what
others have stored. Before, it was 23 and 26: each look at an object was two requests, an upload in pieces four; and on
a busy machine, whose build closes many small packs, 172 and 245.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from benchmarks.build import build_apart, generate, server, settings_of
from benchmarks.command import parser_of, print_figures

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from cluster.local.programs import find_object_store

FIRST_TARGET, REBUILD_TARGET = 40, 10
BUCKET = "lake"
KEYS = {
    "AWS_ACCESS_KEY_ID": "multilink",
    "AWS_SECRET_ACCESS_KEY": "of-this-benchmark",
    "AWS_DEFAULT_REGION": "us-east-1",
}
OPERATION = re.compile(r" s3_(\w+) ")


@contextlib.contextmanager
def object_store(folder: Path, log: Path) -> Iterator[None]:
    """Run an S3 server over a folder, and lead this process and its children to it."""
    (folder / BUCKET).mkdir(parents=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    os.environ |= {**KEYS, "AWS_ENDPOINT_URL": f"http://{address}"}
    keys = {"ROOT_ACCESS_KEY": KEYS["AWS_ACCESS_KEY_ID"], "ROOT_SECRET_KEY": KEYS["AWS_SECRET_ACCESS_KEY"]}
    command = [find_object_store(print), "--port", address, "--quiet", "--keep-alive", "--access-log", str(log)]
    with subprocess.Popen(
        [*command, "posix", str(folder)], env=os.environ | keys, stdout=subprocess.DEVNULL
    ) as process:
        host, _, port = address.partition(":")
        while socket.socket().connect_ex((host, int(port))):
            time.sleep(0.1)
        yield
        process.terminate()


def operations(log: Path) -> Counter[str]:
    """Return how often each operation was asked for."""
    return Counter(OPERATION.findall(log.read_text(encoding="utf-8"))) if log.exists() else Counter()


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--documents", type=int, default=200)
    parser.add_argument("--images", type=int, default=5, help="of a document")
    parser.add_argument("--pixels", type=int, default=400, help="of a side of a picture")
    parser.add_argument("--new", type=int, default=2, help="documents that come for the second build")
    options = parser.parse_args()
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="multilink-benchmark-") as name:
        home = Path(name)
        web, log = home / "web", home / "requests.log"
        web.mkdir()
        with object_store(home / "store", log), server(web) as url:
            counts = {
                "first": range(options.documents),
                "rebuild": range(options.documents, options.documents + options.new),
            }
            for title, documents in counts.items():
                path = generate(web, documents, images=options.images, pixels=options.pixels, url=url)
                before = operations(log)
                build_apart(settings_of(path, url=url, plain=False), f"s3://{BUCKET}/lake", 1)
                asked = operations(log) - before
                target = FIRST_TARGET if title == "first" else REBUILD_TARGET
                thousand = asked.total() / (documents.stop * options.images / 1000)
                print(f"{title}: {asked.total()} requests, {thousand:.0f} for 1,000 images (target {target})")
                print("  " + ", ".join(f"{operation} {count}" for operation, count in asked.most_common()))
                figures[f"requests-{title}"] = round(thousand, 1)
    print_figures(options, figures)


if __name__ == "__main__":
    main()
