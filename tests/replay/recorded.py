"""The recording's records while they are being made: images, albums, posts and what is expected of them.

Plain values and their JSON forms. Drawing pictures, choosing captions and writing files happen elsewhere;
so does every decision about what a post is for. `Outcome` states the recorder's intention, which tests
compare with what the pipeline did.
"""

from dataclasses import dataclass, field

from behaviours import Behaviour, PageStyle

Json = str | int | float | bool | None | list["Json"] | dict[str, "Json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFile:
    """One image of the image host.

    Attributes:
        id: The host's identifier, seven letters and digits.
        extension: Of the address, without the dot.
        content_type: The header the server sends, true or not.
        data: The body; None when the behaviour needs none.
        width: Pixels, as an album lists it.
        height: Pixels, as an album lists it.
        valid: Whether a careful, patient client ends up with a still picture.
    """

    id: str
    extension: str
    content_type: str
    data: bytes | None
    width: int
    height: int
    animated: bool = False
    valid: bool = True
    behaviour: Behaviour = Behaviour.SERVE
    location: str | None = None

    @property
    def file_name(self) -> str:
        """The name under `images/`."""
        return f"{self.id}.{self.extension}"

    def to_json(self) -> dict[str, Json]:
        """The entry of `images.json`; defaults are left out."""
        entry: dict[str, Json] = {"type": self.content_type}
        if self.data is not None:
            entry["file"] = self.file_name
        if self.behaviour is not Behaviour.SERVE:
            entry["behaviour"] = self.behaviour.value
        if self.location is not None:
            entry["location"] = self.location
        return entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Medium:
    """An image in its place in an album, with what was written under it."""

    image: ImageFile
    title: str | None = None
    description: str | None = None
    address_extension: str | None = None
    """When the album links the image under another extension than its own."""

    @property
    def captioned(self) -> bool:
        """True when a title or a description has a visible character."""
        return any(text is not None and text.strip() for text in (self.title, self.description))

    def to_json(self) -> dict[str, Json]:
        """The entry of an album's `media`."""
        image = self.image
        mime = "image/gif" if image.animated else image.content_type
        return {
            "id": image.id,
            "ext": self.address_extension or image.extension,
            "mime": mime if mime.startswith("image/") else "image/jpeg",
            "width": image.width,
            "height": image.height,
            "size": len(image.data) if image.data is not None else 0,
            "animated": image.animated,
            "title": self.title,
            "description": self.description,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Album:
    """An album page: media in order."""

    id: str
    title: str | None
    media: tuple[Medium, ...]
    style: PageStyle = PageStyle.CONTAINERS
    behaviour: Behaviour = Behaviour.SERVE

    @property
    def valid_images(self) -> int:
        """How many media end as valid still pictures."""
        return sum(medium.image.valid and not medium.image.animated for medium in self.media)

    @property
    def captions(self) -> int:
        """How many media carry a caption."""
        return sum(medium.captioned for medium in self.media)

    def to_json(self) -> dict[str, Json]:
        """The entry of `albums.json`."""
        return {
            "title": self.title,
            "style": self.style.value,
            "behaviour": self.behaviour.value,
            "media": [medium.to_json() for medium in self.media],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What should become of a post: `reason` is None exactly when it is kept."""

    reason: str | None
    images: int = 0
    sentences: int = 0
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Json]:
        """The entry of `expected.json`."""
        entry: dict[str, Json] = {
            "outcome": "keep" if self.reason is None else "drop",
            "reason": self.reason or "none",
            "images": self.images,
            "sentences": self.sentences,
        }
        if self.notes:
            entry["notes"] = list(self.notes)
        return entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """A submission, unescaped, with the album it links when there is one.

    While a post is a draft, its `id` is empty and `{id}` in its `url` stands for it.
    """

    id: str
    subreddit: str
    title: str
    url: str
    score: int
    created_utc: int
    author: str
    outcome: Outcome
    album: Album | None = None
    selftext: str = ""
    num_comments: int = 0
    listed: bool = True
    """Whether the API lists it: a deleted post is only in the dump."""
    dump_changes: dict[str, Json] = field(default_factory=dict)
    """Fields that the dump's line has otherwise."""
    dump_omits: tuple[str, ...] = ()
    """Fields that the dump's line lacks."""
    repeated_in_dump: bool = False
    """Whether the dump has the record a second time."""
    bad_bytes_in_dump: bool = False
    """Whether the dump's title has bytes that are not UTF-8."""

    @property
    def is_self(self) -> bool:
        """True for a text post."""
        return "/comments/" in self.url

    @property
    def domain(self) -> str:
        """The address's host, or reddit's form of it for a text post."""
        if self.is_self:
            return f"self.{self.subreddit}"
        return self.url.split("/")[2].removeprefix("www.")

    def to_json(self) -> dict[str, Json]:
        """The published submission fields, unescaped."""
        return {
            "id": self.id,
            "name": f"t3_{self.id}",
            "subreddit": self.subreddit,
            "score": self.score,
            "title": self.title,
            "url": self.url,
            "domain": self.domain,
            "permalink": f"/r/{self.subreddit}/comments/{self.id}/",
            "is_self": self.is_self,
            "over_18": False,
            "selftext": self.selftext,
            "author": self.author,
            "num_comments": self.num_comments,
            "created_utc": self.created_utc,
        }
