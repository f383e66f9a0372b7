"""Settings of the stages: one frozen dataclass a stage, imported by every stage and importing none.

A source's settings stand beside its reader, in `pipelines/sources/`. `recipe.py` puts all of them together as a
`BuildConfig`. A setting is part of a version's name unless a mark at its field says why not: `schemas.configs.Outside`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from schemas.configs import (
    NonNegativeFloat,
    NonNegativeInt,
    Outside,
    PositiveFloat,
    PositiveInt,
    Probability,
    Settings,
    Share,
    outside,
    require,
)
from schemas.features import Storage

NO_LIMIT = 1_000_000
MAX_ADDRESSES = 500  # of a document whose images are counted after dedupe: an album of more is not fetched
HostPort = Annotated[str, Meta(pattern=r"^\S+:\d+\Z", description="expected HOST:PORT")]
Route = Annotated[
    str,
    Meta(
        pattern=r"^[^=\s]+=\[?([\d.]+|[\da-fA-F.]*:[\da-fA-F:.]*)\]?:\d+\Z",
        description="expected HOST=ADDRESS:PORT, with an IP address",
    ),
]
Placeholder = Annotated[
    str,
    Meta(
        pattern=r"^(https?://\S+|[0-9a-fA-F]{64})\Z",
        description="expected http(s) addresses or SHA-256 in hexadecimal",
    ),
]
Column = Annotated[
    str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*\Z", description="expected names of letters, digits, . _ -")
]


class Runner(StrEnum):
    """Where a build runs: on this machine, or on a cluster that is driven from here."""

    LOCAL = "local"
    PORTABLE = "portable"
    FLINK = "flink"
    SPARK = "spark"
    DATAFLOW = "dataflow"


class FingerprintName(StrEnum):
    """Perceptual hashes (SPEC 3): of 64 bits, or of 256 where the name says so."""

    PHASH = "phash"
    FINDIMAGEDUPES = "findimagedupes"
    PHASH_256 = "phash-256"


class Policy(StrEnum):
    """What near-duplicates do: drop every document that has one (H), keep the earliest by id, or nothing."""

    DROP_DOCUMENTS = "drop-documents"
    KEEP_FIRST = "keep-first"
    KEEP_ALL = "keep-all"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpConfig(Settings):
    """How the one HTTP client behaves.

    Attributes:
        user_agent: sent with every request; `contact` is appended, so that a host can reach a person.
        contact: an e-mail address or a URL; many hosts want one, so a build of a web source warns if it is missing.
        allow_hosts: `HOST:PORT` that may be private, loopback or link-local; all others are refused on every hop.
        connect_to: `HOST=ADDRESS:PORT`: requests for HOST go to that address instead of the one DNS gives (the
            request itself is unchanged), as curl's `--connect-to`. The address still needs `allow_hosts`.
        requests_per_second: requests per second to one host.
        connections_per_host: simultaneous requests to one host.
        connections: simultaneous requests of one worker to all hosts.
        attempts: attempts for a request, the first included.
        backoff_s: wait before the second try; doubles each time, with jitter; `Retry-After` overrides it.
        connect_timeout_s: to open a connection: look-up of the name, all addresses and TLS together.
        read_timeout_s: time between two pieces of a response.
        total_timeout_s: time for one response, redirects included.
        max_bytes: size of a response body.
        max_file_bytes: size of a whole file of a source (a dump, an archive).
        obey_robots: whether robots.txt is obeyed.
        obey_ai_txt: whether ai.txt is obeyed.
        obey_robots_tags: whether noai, noimageai, noindex and noimageindex are obeyed, in the header X-Robots-Tag and
            in `<meta name="robots">`.
        obey_tdm: whether rights reserved by TDMRep are obeyed: in tdmrep.json, a header or a page.
        obey_content_usage: whether preferences against training are obeyed: Content-Usage and Content-Signal in
            robots.txt, a header or a page.
        listing_max_age_s: age below which a captured listing or input file is not requested again.
        page_max_age_s: the same for a page or an API's answer about one record; images are kept forever.
        ask_again_before: refusals of hosts before this time (seconds since 1970) are forgotten; set by `build
            --ask-again`.
        ca_bundle: path of a PEM file of certificate authorities trusted besides the usual ones.
    """

    part: ClassVar[str] = "http"
    user_agent: str = outside("multilink/0.1", Outside.REACH)
    contact: str = outside("", Outside.PACE)
    allow_hosts: tuple[HostPort, ...] = outside((), Outside.REACH)
    connect_to: tuple[Route, ...] = outside((), Outside.REACH)
    requests_per_second: PositiveFloat = outside(5.0, Outside.PACE)
    connections_per_host: PositiveInt = outside(4, Outside.PACE)
    connections: PositiveInt = outside(128, Outside.PACE)
    attempts: PositiveInt = outside(4, Outside.REACH)
    backoff_s: PositiveFloat = outside(1.0, Outside.REACH)
    connect_timeout_s: PositiveFloat = outside(5.0, Outside.REACH)
    read_timeout_s: PositiveFloat = outside(20.0, Outside.REACH)
    total_timeout_s: PositiveFloat = outside(60.0, Outside.REACH)
    max_bytes: PositiveInt = outside(20_000_000, Outside.REACH)
    max_file_bytes: PositiveInt = outside(500_000_000_000, Outside.REACH)
    obey_robots: bool = True
    obey_ai_txt: bool = True
    obey_robots_tags: bool = True
    obey_tdm: bool = True
    obey_content_usage: bool = True
    listing_max_age_s: float = outside(86_400.0, Outside.REACH)
    page_max_age_s: float = outside(2_592_000.0, Outside.REACH)
    ask_again_before: float = outside(0.0, Outside.PACE)
    ca_bundle: str = outside("", Outside.REACH)

    @property
    def identity(self) -> str:
        """Return the User-Agent, with the contact where there is one."""
        return f"{self.user_agent} (+{self.contact})" if self.contact else self.user_agent

    @property
    def product(self) -> str:
        """Return the token by which robots.txt and headers name this client."""
        return self.user_agent.strip().partition("/")[0].partition(" ")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentsConfig(Settings):
    """Filters on documents (SPEC 2; the defaults are those of `diy`).

    Attributes:
        min_sentences: documents with fewer sentences are dropped.
        max_sentences: documents with more sentences are dropped.
        min_long_sentences: at least this many sentences of `long_sentence_tokens` tokens.
        long_sentence_tokens: least tokens of a long sentence.
        min_images: documents with fewer valid images are dropped.
        max_images: documents with more images are dropped.
        keep_partial: whether a document is kept if one of its images is missing.
        is_judged_after_dedupe: whether these rules apply after dedupe, to valid images, so that every document with an
            image is fetched first (H's order for DIY); else sentences and addresses are counted before any request.
    """

    part: ClassVar[str] = "documents"
    min_sentences: int = 1
    max_sentences: int = 40
    min_long_sentences: int = 2
    long_sentence_tokens: int = 5
    min_images: int = 2
    max_images: int = 40
    keep_partial: bool = True
    is_judged_after_dedupe: bool = False

    @property
    def before_dedupe(self) -> DocumentsConfig:
        """Return the rules that are applied before dedupe."""
        if not self.is_judged_after_dedupe:
            return self
        return replace(
            self,
            min_sentences=0,
            max_sentences=NO_LIMIT,
            min_long_sentences=0,
            min_images=1,
            max_images=MAX_ADDRESSES,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagesConfig(Settings):
    """What is an acceptable picture, and how it is kept.

    Attributes:
        max_pixels: largest number of pixels of the original, checked before decoding; half as many for WebP, which
            takes twice the memory.
        min_side_px: least shorter side of the original.
        allow_animated: whether the first frame of an animation counts as an image.
        jpeg_quality: JPEG quality of the 256-px copy.
        placeholder_addresses: number of addresses of a host with the same bytes, or redirected to one address, that are
            taken as removed pictures and left out as `removed-image`; 0: never.
        placeholders: known placeholders: addresses to which dead ones redirect, SHA-256 of files.
    """

    part: ClassVar[str] = "images"
    max_pixels: int = 100_000_000
    min_side_px: int = 16
    allow_animated: bool = False
    jpeg_quality: int = 90
    placeholder_addresses: NonNegativeInt = 8
    placeholders: tuple[Placeholder, ...] = (
        "https://i.imgur.com/removed.png",
        "https://combo.staticflickr.com/pw/images/en-us/photo_unavailable.png",
        "https://s.yimg.com/pw/images/en-us/photo_unavailable.png",
    )

    @property
    def of_copies(self) -> dict[str, Any]:
        """Return the settings that decide what a copy is."""
        return {name: getattr(self, name) for name in ("max_pixels", "min_side_px", "allow_animated", "jpeg_quality")}


@dataclass(frozen=True, slots=True, kw_only=True)
class DedupeConfig(Settings):
    """Near-duplicate images (SPEC 3).

    Attributes:
        fingerprint: which perceptual hash; `findimagedupes` with a radius of 3 is Hessel 2019's.
        radius: two images are duplicates when their fingerprints differ in at most this many bits (3 of 64 bits is
            about as strict as 10 of 256).
        policy: what happens to documents with near-duplicates.
    """

    part: ClassVar[str] = "dedupe"
    fingerprint: FingerprintName = FingerprintName.PHASH
    radius: Annotated[int, Meta(ge=0, le=12)] = 3
    policy: Policy = Policy.DROP_DOCUMENTS


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityConfig(Settings):
    """Filters of quality (`pipelines.documents.rules` defines what is measured); all are off by default.

    Attributes:
        min_side_px: least shorter side of an image's original; OBELICS uses 150.
        max_aspect: largest longer side over shorter side; 0: any. OBELICS uses 2.
        min_sharpness: least variance of the Laplacian of its 256-px copy; 100 is usual.
        min_images_per_word: least number of images over words of a document.
        max_images_per_word: largest number of images over words; 0: any.
        languages: languages of documents, as stated by the source; empty: all. `und`: not stated.
    """

    part: ClassVar[str] = "quality"
    min_side_px: NonNegativeInt = 0
    max_aspect: float = 0.0
    min_sharpness: NonNegativeFloat = 0.0
    min_images_per_word: NonNegativeFloat = 0.0
    max_images_per_word: NonNegativeFloat = 0.0
    languages: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        Settings.__post_init__(self)
        aspect = self.max_aspect
        require(aspect == 0 or aspect >= 1, field="quality.max_aspect", value=aspect, rule="must be 0, or at least 1")

    @property
    def is_on(self) -> bool:
        """Return whether any filter is."""
        return self != QualityConfig()


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyDetectionConfig(Settings):
    """Copies that perceptual hashes miss (crops, borders, overlays): images with near vectors.

    Attributes:
        extractor: the extractor of `features.images` whose vectors are compared; empty: no search. SSCD (Pizzi et al.
            2022), as an ONNX file, is made for this.
        cosine: images with at least this cosine are copies. SSCD's authors use 0.75; `benchmarks/copy_detection.py`
            measures other extractors.
        policy: what happens to the documents of copies.
    """

    part: ClassVar[str] = "copy_detection"
    extractor: str = ""
    cosine: Share = 0.75
    policy: Policy = Policy.DROP_DOCUMENTS


class Device(StrEnum):
    """`auto` takes a GPU where there is one."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


BEST = "best"  # chosen on several kinds of documents: docs/explanation/learning.md
STRONGEST = (
    "efficientnet-lite0",
    "efficientnet-lite0-mirrored",
    "efficientnet-lite0-middle",
    "efficientnet-lite0-names",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeaturesConfig(Settings):
    """Which extractors run, each giving a column of the shards, and how their values are stored.

    The extractors' fingerprints, which name the weights among other things, are part of a version.

    Attributes:
        images: extractors of images: vectors, regions or classes; `best`: the strongest packaged vectors.
        sentences: extractors of sentence vectors.
        weights: `NAME=URI[#sha256=HEX]`: the weights of an extractor without packaged ones, or your own network (a file
            ending in `.onnx`) for a column NAME; http(s) and object stores need the SHA-256.
        storage: how vectors are stored; vectors of regions are always float16.
        max_regions: largest number of regions of an image, 1 to 100.
        min_regions: regions of an image that are kept whatever their score (an image may have fewer).
        min_score: lowest score of further regions.
        device: where networks run.
        threads: images processed at once in a worker process; 0: its share of the cores of its machine.
    """

    part: ClassVar[str] = "features"
    images: tuple[Column, ...] = ("efficientnet-lite0", "efficientnet-lite0-names")  # of one forward pass
    sentences: tuple[Column, ...] = ("use-multilingual",)
    weights: tuple[str, ...] = outside((), Outside.PATH)
    storage: Storage = Storage.FLOAT16
    max_regions: Annotated[int, Meta(ge=1, le=100)] = 36
    min_regions: NonNegativeInt = 10
    min_score: Annotated[float, Meta(ge=0, le=1)] = 0.2
    device: Device = outside(Device.AUTO, Outside.PACE)
    threads: NonNegativeInt = outside(0, Outside.PACE)

    def __post_init__(self) -> None:
        Settings.__post_init__(self)
        for name in ("images", "sentences"):
            names = getattr(self, name)
            require(len({*names}) == len(names), field=f"features.{name}", value=names, rule="a name may be given once")
        names = (each for name in self.images for each in (STRONGEST if name == BEST else (name,)))
        object.__setattr__(self, "images", tuple(dict.fromkeys(names)))
        fits, rule = self.min_regions <= self.max_regions, "must be at most features.max_regions"
        require(fits, field="features.min_regions", value=self.min_regions, rule=rule)


class OnLeak(StrEnum):
    """What becomes of what splits share: it is told, or dropped from the weaker split."""

    REPORT = "report"
    DROP = "drop"


SharedThing = Literal["images-exact", "images-near", "texts"]  # what two splits can share


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitsConfig(Settings):
    """Shares of the splits; a document's place follows from its id alone, so later documents never move it.

    Attributes:
        val: share of documents for validation.
        test: share of documents for test.
        seed: seed of the assignment.
        on_leak: what happens to images and texts that splits share. The report always lists all of them.
        leak_kinds: kinds of leaks to which `drop` applies.
        leak_min_tokens: least number of words of a shared text for `drop`: "Preheat the oven to 180 degrees." is in
            many otherwise different recipes.
    """

    part: ClassVar[str] = "splits"
    val: Probability = 0.1
    test: Probability = 0.1
    seed: int = 0
    on_leak: OnLeak = OnLeak.REPORT
    leak_kinds: tuple[SharedThing, ...] = ("images-exact", "images-near", "texts")
    leak_min_tokens: PositiveInt = 10

    def __post_init__(self) -> None:
        Settings.__post_init__(self)
        total = self.val + self.test
        require(total < 1, field="splits.val + splits.test", value=total, rule="must leave a share for training")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardsConfig(Settings):
    """Size of a shard: the number of shards of a split follows from its number of documents.

    Attributes:
        documents: documents in a shard; more if a split would have more than 16,384 shards, since every reader holds
            the list of parts.
    """

    part: ClassVar[str] = "shards"
    documents: PositiveInt = 256
