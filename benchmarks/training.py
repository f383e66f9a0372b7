"""One training step of Hessel 2019's model: a padded implementation, ours, and the bound of the machine.

    (a) padded  written here as one would at first: documents padded to the longest, `torch.nn.GRU` over every padded
                sentence, a loop over pairs of documents, `.item()` at every step. The same mathematics: before anything
                is timed, both give the same loss for the same weights.
    (b) ours    `training.loop.step.Stepper.step` as a run calls it, with the preparation of its batch.
    (c) bound   floating-point operations of the real words, images and cosines, forward and backward, at the rate
                of the machine's own product of two large matrices in that precision.

Batches are of documents of 8-22 sentences (6-30 words) and 8-24 images, d = 1024, image vectors of 1664 numbers. Both
run in turns in one process, and the best of `--rounds` counts, so that other work on the machine disturbs neither; (a)
is left out of a round once it has taken `PATIENCE_S` in all (256 documents are 65,536 pairs to loop over).
`--clock cpu` with `--threads 1` measures processor time: what a step costs on a machine that is shared.

Each table ends with what was aimed at and whether it was reached. (a) is that of the same precision, and (a) over (c)
is said beside it: it is how much faster than (a) a step at the bound is. Found in processor time on a shared AMD EPYC
with AVX-512 BF16, 11 documents, 2026-11-21: float32 3.1 x (a), of at most 3.1, 100% of (c); bfloat16 3.0 x (a), of at
most 3.4, 88% of (c), and 5.9 x (a) in float32; AP as fast as DC. Not yet run on a GPU.

Run `python -m benchmarks.training [--json]`, on a GPU with `--device cuda --documents 11 64 256`; torch, numpy, scipy,
pyarrow and lapjv are all it needs.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.held_split import HeldSplit
from training.config import Device, LoopConfig, Precision, TrainConfig, objective
from training.data.documents import DocumentSet
from training.data.loading import DatasetIdentity
from training.data.ragged import Ragged
from training.loop.context import Context
from training.loop.encoding import prepare_batch
from training.loop.state import RunState, start
from training.loop.step import StepGuard, Stepper
from training.model import LinkModel, ModelCard
from training.objectives.batch import DrawKey
from training.text.vocabulary import PAD, UNKNOWN, Vocabulary
from training.towers.image.linear import LinearSettings
from training.towers.text.gru import GruSettings

DIMENSIONS, WORD_DIMENSIONS, IMAGE_DIMENSIONS = 1024, 300, 1664
SENTENCES, WORDS, IMAGES = (8, 22), (6, 30), (8, 24)
VOCABULARY = 5000
DROPOUT, MARGIN = 0.4, 0.2
BATCHES = 3
LARGE = {"cpu": 2048, "cuda": 8192}
KINDS = ("dc", "ap")
PATIENCE_S = 20.0


@dataclass(frozen=True, kw_only=True)
class Target:
    """What is aimed at.

    Attributes:
        speed_up: least (a) over (b).
        bound_share: least (c) over (b); 0: none.
        ap_over_dc: most that AP's step may take, in steps with DC.
        ap_documents: the batch that `ap_over_dc` is about; 0: any.
    """

    speed_up: float
    bound_share: float = 0.0
    ap_over_dc: float
    ap_documents: int = 0


ON_GPU = Target(speed_up=10, ap_over_dc=1.5, ap_documents=256)
TARGETS = {
    ("cpu", Precision.FLOAT32): Target(speed_up=3, bound_share=0.6, ap_over_dc=1.1),
    ("cpu", Precision.BFLOAT16): Target(speed_up=5, bound_share=0.6, ap_over_dc=1.1),
    ("cuda", Precision.FLOAT32): ON_GPU,
    ("cuda", Precision.BFLOAT16): ON_GPU,
}


@dataclass(frozen=True)
class Batch:
    """One batch in both forms: padded arrays for (a), positions in the split for (b)."""

    words: Tensor
    lengths: Tensor
    sentence_counts: Tensor
    images: Tensor
    image_counts: Tensor
    positions: np.ndarray


@dataclass(frozen=True)
class World:
    """Documents that both train on."""

    documents: DocumentSet
    vocabulary: Vocabulary
    sentences: tuple[tuple[tuple[int, ...], ...], ...]
    batches: tuple[Batch, ...]


def make_world(documents: int, device: torch.device) -> World:
    rng = np.random.default_rng(0)
    vocabulary = Vocabulary((PAD, UNKNOWN, *(f"w{number}" for number in range(VOCABULARY - 2))))
    total = documents * BATCHES
    sentences = tuple(
        tuple(
            tuple(rng.integers(2, VOCABULARY, rng.integers(*WORDS, endpoint=True)).tolist())
            for _ in range(rng.integers(*SENTENCES, endpoint=True))
        )
        for _ in range(total)
    )
    image_counts = rng.integers(*IMAGES, total, endpoint=True)
    bank = rng.normal(size=(int(image_counts.sum()), IMAGE_DIMENSIONS)).astype(np.float16)
    own = Ragged.of([len(row) for row in sentences])
    held = DocumentSet(
        ids=tuple(f"d{number}" for number in range(total)),
        texts=tuple(" ".join(vocabulary.words[word] for word in words) for row in sentences for words in row),
        sentences=own,
        sentence_numbers=own.numbers,
        sentence_vectors=None,
        image_rows=np.arange(len(bank)),
        images=Ragged.of(image_counts),
        image_hashes=tuple(f"{number}" for number in range(len(bank))),
        image_bank=bank,
    )
    chunks = np.arange(total).reshape(BATCHES, documents)
    batches = tuple(make_batch(held, sentences, positions, device) for positions in chunks)
    return World(held, vocabulary, sentences, batches)


def make_batch(
    held: DocumentSet, sentences: Sequence[Sequence[Sequence[int]]], positions: np.ndarray, device: torch.device
) -> Batch:
    """Pad a batch to its longest document, longest sentence and largest album."""
    chosen = [sentences[position] for position in positions]
    most, longest = max(map(len, chosen)), max(len(words) for row in chosen for words in row)
    words = np.zeros((len(chosen), most, longest), np.int64)
    lengths = np.ones((len(chosen), most), np.int64)
    counts = held.images.counts[positions]
    images = np.zeros((len(chosen), counts.max(), IMAGE_DIMENSIONS), np.float32)
    for d, (position, row) in enumerate(zip(positions, chosen, strict=True)):
        for s, sentence in enumerate(row):
            words[d, s, : len(sentence)], lengths[d, s] = sentence, len(sentence)
        images[d, : counts[d]] = held.image_bank[held.images.rows(position)]
    arrays = (words, lengths, np.array([len(row) for row in chosen]), images, counts)
    return Batch(*(torch.from_numpy(array).to(device) for array in arrays), positions=positions)


class Padded(nn.Module):
    """(a): both towers over padded documents."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WORD_DIMENSIONS)
        self.gru = nn.GRU(WORD_DIMENSIONS, DIMENSIONS, batch_first=True)
        self.affine = nn.Linear(IMAGE_DIMENSIONS, DIMENSIONS)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        b, n, length = batch.words.shape
        embedded = self.dropout(self.embedding(batch.words.view(b * n, length)))
        states, _ = self.gru(embedded)
        last = (batch.lengths.view(b * n) - 1)[:, None, None].expand(-1, 1, DIMENSIONS)
        texts = F.normalize(states.gather(1, last).view(b, n, DIMENSIONS).float(), dim=-1)
        images = F.normalize(self.affine(self.dropout(batch.images)).float(), dim=-1)
        return texts, images


def padded_similarity(cosines: Tensor, kind: str) -> Tensor:
    if kind == "dc":
        return cosines.amax(dim=1).mean() + cosines.amax(dim=0).mean()
    rows, columns = linear_sum_assignment(cosines.detach().float().cpu().numpy(), maximize=True)
    return cosines[torch.as_tensor(rows), torch.as_tensor(columns)].mean()


def padded_loss(model: Padded, batch: Batch, kind: str) -> Tensor:
    texts, images = model(batch)
    n, m = batch.sentence_counts.tolist(), batch.image_counts.tolist()
    documents = range(len(n))
    similarity = torch.stack(
        [
            torch.stack([padded_similarity(texts[i, : n[i]] @ images[j, : m[j]].T, kind) for j in documents])
            for i in documents
        ]
    )
    own, others = similarity.diagonal(), ~torch.eye(len(n), dtype=torch.bool, device=similarity.device)
    over_images = torch.relu(MARGIN - own[:, None] + similarity) * others
    over_sentences = torch.relu(MARGIN - own[None, :] + similarity) * others
    return (over_images.amax(dim=1) + over_sentences.amax(dim=0)).mean()


class PaddedStep:
    def __init__(self, precision: Precision, device: torch.device) -> None:
        self.model = Padded().to(device)
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=1e-4)
        self.device, self.is_mixed = device.type, precision is Precision.BFLOAT16

    def __call__(self, batch: Batch, kind: str) -> float:
        self.optimiser.zero_grad()
        with torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.is_mixed):
            loss = padded_loss(self.model, batch, kind)
        loss.backward()
        self.optimiser.step()
        return loss.item()


class OurStep:
    def __init__(self, world: World, precision: Precision, device: torch.device, dropout: float = DROPOUT) -> None:
        config = TrainConfig(
            text=GruSettings(dropout=dropout, word_dimensions=WORD_DIMENSIONS),
            image=LinearSettings(dropout=dropout),
            training=LoopConfig(precision=precision, device=Device(device.type)),
        )
        identity = DatasetIdentity(
            dataset="benchmark",
            version="1",
            manifest_digest="",
            image_features="vectors",
            image_dimensions=IMAGE_DIMENSIONS,
            sentence_features=None,
            sentence_dimensions=None,
        )
        self.context = Context(device=device)
        model = LinkModel(ModelCard(config=config, data=identity), world.vocabulary).to(device)
        self.run: RunState = start(model)
        self.split = HeldSplit(world.documents)
        self.stepper = Stepper(model, self.run.optimiser, self.context, StepGuard())
        self.steps = 0

    def __call__(self, batch: Batch, kind: str) -> Tensor:
        self.steps += 1
        model = self.run.model
        terms = objective("cross", similarity=kind, margin=MARGIN)
        model.card = replace(model.card, config=replace(model.card.config, objective=terms))
        draw_key = DrawKey(split="training", epoch=1, step=self.steps)
        prepared = prepare_batch(model, self.split, batch.positions, draw_key)
        return self.stepper.step([prepared], count=1)


def check_same_mathematics(world: World, device: torch.device) -> None:
    """Stop unless (a) and (b) give the same losses for the same weights, without dropout."""
    for kind in KINDS:
        ours, padded = OurStep(world, Precision.FLOAT32, device, dropout=0.0), Padded().to(device).eval()
        model = ours.run.model
        padded.embedding.load_state_dict(model.text.embedding.state_dict())
        padded.gru.load_state_dict(model.text.gru.state_dict())
        padded.affine.load_state_dict(model.image.affine.state_dict())
        with torch.no_grad():
            expected = float(padded_loss(padded, world.batches[0], kind))
        found = float(ours(world.batches[0], kind))
        if abs(found - expected) > 1e-4:
            raise SystemExit(f"{kind}: the padded loss is {expected}, ours {found}")


def operations(world: World) -> float:
    """Return the floating-point operations of an average step on real words, images and cosines."""
    words = sum(len(words) for row in world.sentences for words in row) / BATCHES
    sentences = sum(map(len, world.sentences)) / BATCHES
    images = len(world.documents.image_rows) / BATCHES
    recurrence = 3 * 2 * words * 3 * DIMENSIONS * (WORD_DIMENSIONS + DIMENSIONS)
    projection = 2 * 2 * images * IMAGE_DIMENSIONS * DIMENSIONS
    return recurrence + projection + 3 * 2 * sentences * images * DIMENSIONS


def product_seconds(precision: Precision, device: torch.device, clock: Callable[[], float]) -> float:
    """Return the time of one large product per floating-point operation, the best of several."""
    size = LARGE[device.type]
    dtype = torch.bfloat16 if precision is Precision.BFLOAT16 else torch.float32
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    return best(lambda: left @ right, 8, device, clock) / (2 * size**3)


def best(run: Callable[[], object], rounds: int, device: torch.device, clock: Callable[[], float]) -> float:
    return min(once(run, device, clock) for _ in range(rounds))


def once(run: Callable[[], object], device: torch.device, clock: Callable[[], float]) -> float:
    began = clock()
    run()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return clock() - began


def measure(world: World, documents: int, options: argparse.Namespace) -> dict[str, float]:
    """Return the milliseconds of a step: of (a), (b) and (c), by precision and similarity."""
    device, clock = torch.device(options.device), time.process_time if options.clock == "cpu" else time.perf_counter
    found: dict[str, float] = {}
    for precision in Precision:
        steps = {"padded": PaddedStep(precision, device), "ours": OurStep(world, precision, device)}
        found[f"{documents} {precision} bound"] = 1000 * operations(world) * product_seconds(precision, device, clock)
        spent = dict.fromkeys(KINDS, 0.0)
        for number, kind, name in product(range(options.rounds), KINDS, steps):
            key = f"{documents} {precision} {kind} {name}"
            if name == "padded" and spent[kind] > PATIENCE_S:
                continue
            run = partial(steps[name], world.batches[number % BATCHES], kind)
            seconds = best(run, 1 if name == "padded" else 2, device, clock)
            found[key] = min(found.get(key, np.inf), 1000 * seconds)
            spent[kind] += seconds if name == "padded" else 0.0
        show(documents, precision, found)
        judge(documents, precision, found, TARGETS[device.type, precision])
    return found


def show(documents: int, precision: Precision, found: dict[str, float]) -> None:
    """Print a precision's table; (a) of both precisions where it is known."""
    bound = found[f"{documents} {precision} bound"]
    for kind in KINDS:
        title = f"{documents} {precision} {kind}"
        padded, ours = found[f"{title} padded"], found[f"{title} ours"]
        exact = found[f"{documents} {Precision.FLOAT32} {kind} padded"]
        print(
            f"{title}: (a) padded {padded:.0f} ms, (b) ours {ours:.0f} ms, (c) bound {bound:.0f} ms; "
            f"{padded / ours:.1f} x (a), {exact / ours:.1f} x (a) in float32, {100 * bound / ours:.0f}% of (c)"
        )


def judge(documents: int, precision: Precision, found: dict[str, float], target: Target) -> None:
    """Print what was aimed at, of the slower similarity, and whether it was reached."""
    title = f"{documents} {precision}"
    bound = found[f"{title} bound"]
    padded, ours = ([found[f"{title} {kind} {name}"] for kind in KINDS] for name in ("padded", "ours"))
    speed_up = min(slow / fast for slow, fast in zip(padded, ours, strict=True))
    share, over_dc = bound / max(ours), ours[KINDS.index("ap")] / ours[KINDS.index("dc")]
    lines = [
        f"{speed_up:.1f} x (a), wanted {target.speed_up:g}: {verdict(speed_up >= target.speed_up)}; "
        f"at (c) it were {min(padded) / bound:.1f} x",
        f"{share:.0%} of (c)",
        f"AP {over_dc:.2f} x DC",
    ]
    if target.bound_share:
        lines[1] += f", wanted {target.bound_share:.0%}: {verdict(share >= target.bound_share)}"
    if target.ap_documents in {0, documents}:
        lines[-1] += f", wanted at most {target.ap_over_dc:g}: {verdict(over_dc <= target.ap_over_dc)}"
    for line in lines:
        print(f"{title}: {line}", flush=True)


def verdict(is_reached: bool) -> str:
    return "reached" if is_reached else "missed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the milliseconds as JSON in the last line")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--documents", type=int, nargs="+", default=[11])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    found: dict[str, float] = {}
    for documents in options.documents:
        world = make_world(documents, torch.device(options.device))
        check_same_mathematics(world, torch.device(options.device))
        found |= measure(world, documents, options)
    if options.json:
        print(json.dumps({name: round(value, 1) for name, value in found.items()}))


if __name__ == "__main__":
    main()
