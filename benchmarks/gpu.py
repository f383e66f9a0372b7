"""What a GPU machine does with this code, in ten minutes: `make gpu`. It needs the training core's packages alone.

    python -m benchmarks.gpu [--device cuda] [--documents 11 64 256] [--json]

    step        a step of `hessel-2019` against the machine's own product of two large matrices, in float32 and in
                bfloat16, for DC and for AP, whose assignments the host solves (`benchmarks.training`)
    workers     as many processes as there are GPUs, at most two, train two epochs over NCCL (gloo on processors); their
                parameters are compared with those of one process
    embedding   documents a second of both towers, as `link`, `index` and `evaluate` embed them, beside a processor's
    extraction  pictures a second of a ResNet-50 of torchvision in batches, where torchvision is installed

The table is printed, and written to `benchmarks/gpu.md`. `--device cpu` runs the same on a machine without a GPU.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as processes

from benchmarks.scale_data import make_version
from benchmarks.training import KINDS, OurStep, best, make_world, operations, product_seconds
from schemas.lake import Lake
from schemas.overrides import override
from training.config import Precision
from training.data.loading import load_training_data
from training.loop.context import Context, TorchDistributed
from training.loop.trainer import train
from training.model import LinkModel
from training.recipes import recipe

PAGE = Path(__file__).with_suffix(".md")
PICTURES, ROUNDS = 64, 5
SETTINGS = ["training.epochs=2", "training.select=last", "dimensions=256"]


def seconds(call: Callable[[], object], device: torch.device, rounds: int = ROUNDS) -> float:
    return best(call, rounds, device, time.perf_counter)


def steps(documents: list[int], device: torch.device) -> Iterator[tuple[str, str]]:
    for count in documents:
        world = make_world(count, device)
        for precision in Precision:
            bound = operations(world) * product_seconds(precision, device, time.perf_counter)
            for kind in KINDS:
                step = OurStep(world, precision, device)
                step(world.batches[0], kind)
                taken = seconds(partial(step, world.batches[0], kind), device)
                share = f"{1000 * taken:.1f} ms, {bound / taken:.0%} of the product's rate"
                yield f"step, {count} documents, {precision}, {kind}", share


def work(rank: int, count: int, device: str, home: str, meeting: str) -> None:
    backend = "nccl" if device == "cuda" else "gloo"
    dist.init_process_group(
        backend, init_method=f"file://{meeting}", rank=rank, world_size=count, timeout=timedelta(seconds=120)
    )
    own = torch.device(device, rank) if device == "cuda" else torch.device(device)
    run(Path(home), TorchDistributed(device=own), Path(home) / "together")
    dist.destroy_process_group()


def run(home: Path, context: Context, folder: Path) -> None:
    config = override(recipe("tiny"), SETTINGS)
    data = load_training_data(Lake.at(str(home / "lake")), "scale", config.reading)
    train(config, data, context, run_directory=folder)


def workers(device: torch.device) -> Iterator[tuple[str, str]]:
    count = min(2, torch.cuda.device_count()) if device.type == "cuda" else 2
    with tempfile.TemporaryDirectory(prefix="multilink-gpu-") as scratch:
        home = Path(scratch)
        make_version(home / "lake", 2000, 200)
        began = time.perf_counter()
        run(home, Context(device=device), home / "alone")
        middle = time.perf_counter()
        processes.spawn(work, (count, device.type, str(home), str(home / "meeting")), nprocs=count)
        ended = time.perf_counter()
        alone, together = (LinkModel.load(home / name / "model").state_dict() for name in ("alone", "together"))
    largest = max(float((together[name] - value).abs().max()) for name, value in alone.items())
    yield f"{count} workers", f"{ended - middle:.1f} s with their start, one {middle - began:.1f} s"
    yield f"{count} workers against one", f"largest difference of a parameter {largest:.1e}"


def embedding(device: torch.device) -> Iterator[tuple[str, str]]:
    world = make_world(64, torch.device("cpu"))
    places = {device.type: device, "cpu": torch.device("cpu")}
    for name, place in places.items():
        model = OurStep(world, Precision.FLOAT32, place).run.model.eval()
        taken = seconds(lambda model=model: model.encode(world.documents), place, 2)
        yield f"embedding on {name}", f"{len(world.documents) / taken:.0f} documents/s"


def extraction(device: torch.device) -> Iterator[tuple[str, str]]:
    if importlib.util.find_spec("torchvision") is None:
        yield "extraction", "torchvision is not installed"
        return
    from torchvision.models import resnet50

    network = resnet50().to(device).eval()
    pixels = torch.randn(PICTURES, 3, 224, 224, device=device)
    for dtype in (torch.float32, torch.bfloat16):
        with torch.inference_mode(), torch.autocast(device.type, dtype=dtype, enabled=dtype is torch.bfloat16):
            taken = seconds(lambda: network(pixels), device, 2)
        yield f"extraction, {str(dtype).removeprefix('torch.')}", f"{PICTURES / taken:.0f} pictures/s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--documents", type=int, nargs="+", default=[11, 64, 256])
    parser.add_argument("--json", action="store_true", help="print the figures as JSON in the last line")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        missing = "this machine has no usable GPU; --device cpu runs the same on processors"
        if not options.json:
            raise SystemExit(missing)
        print(missing, "{}", sep="\n")  # `make bench` goes on
        return
    device = torch.device(options.device)
    name = torch.cuda.get_device_name() if options.device == "cuda" else "processors"
    rows = []
    for part in (steps(options.documents, device), workers(device), embedding(device), extraction(device)):
        for row in part:
            rows.append(row)
            print(f"{row[0]:44s}{row[1]}", flush=True)
    table = "\n".join(f"| {what} | {found} |" for what, found in rows)
    if options.device == "cuda":
        PAGE.write_text(f"# On {name}, torch {torch.__version__}\n\n| | |\n|---|---|\n{table}\n")
    if options.json:
        print(json.dumps(dict(rows)))


if __name__ == "__main__":
    main()
