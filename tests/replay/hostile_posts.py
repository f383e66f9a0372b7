"""Posts that a correct build keeps although some of their images are odd, broken or hostile.

Each album holds good pictures and one or two others. Whether the others count as valid images is the recorder's
intention, stated on the image. Sound albums are in `regular_posts.py`; the bytes in `odd_images.py`.
"""

import io
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import odd_images
from behaviours import Behaviour, PageStyle
from identifiers import EARLY_IMAGE
from PIL import Image
from recorded import Album, ImageFile, Medium, Post
from regular_posts import draft, make_album
from stamp_albums import Studio
from stamps import Stamp

Maker = Callable[[Studio, Stamp], ImageFile]

GOOD_PICTURES = 4
METADATA_ADDRESS = "http://169.254.169.254/latest/meta-data/"


def hostile_posts(studio: Studio) -> Iterator[Post]:
    """One post for each group of oddities, and the three whose album is odd."""
    for subject, makers in GROUPS:
        yield with_images(studio, subject, makers)
    yield renamed(studio)
    yield busy_page(studio)
    yield peculiar_captions(studio)


def with_images(studio: Studio, subject: str, makers: tuple[Maker, ...]) -> Post:
    """A kept post of good pictures with the given kinds of image among them, each captioned."""
    media = studio.album_media(None, GOOD_PICTURES)
    taken = {text for medium in media for text in (medium.title, medium.description) if text}
    for make in makers:
        stamp = studio.deck.deal(None, taken, long=True)
        medium = Medium(image=make(studio, stamp), description=stamp.description)
        media.insert(studio.rng.randint(1, len(media)), medium)
    note = subject.replace(" ", "-")
    return draft(studio, make_album(studio, media), f"Canvases with {subject}", notes=[note])


def picture(studio: Studio, stamp: Stamp) -> Image.Image:
    """A good picture of the stamp, decoded."""
    image = studio.paint([stamp], extension="png")
    with Image.open(io.BytesIO(image.data or b"")) as opened:
        return opened.convert("RGB")


def failing(behaviour: Behaviour, studio: Studio, stamp: Stamp) -> ImageFile:
    """An image that never arrives."""
    image = studio.paint([stamp])
    if behaviour is Behaviour.TRICKLE:  # a build asks in the order of addresses, and waits for this beside others
        image = replace(image, id=EARLY_IMAGE)
    keeps_body = behaviour in (Behaviour.SHORT_BODY, Behaviour.TRICKLE)
    return replace(image, behaviour=behaviour, valid=False, data=image.data if keeps_body else None)


def patient(behaviour: Behaviour, studio: Studio, stamp: Stamp) -> ImageFile:
    """An image that arrives for a client that waits or asks again."""
    return replace(studio.paint([stamp]), behaviour=behaviour)


def animation(studio: Studio, stamp: Stamp) -> ImageFile:
    """An animated GIF."""
    frames = [picture(studio, stamp) for _ in range(3)]
    return replace(studio.file(odd_images.animated_gif(frames), "gif", (120, 120)), animated=True)


def truncated(studio: Studio, stamp: Stamp) -> ImageFile:
    """Half of a JPEG, of the length the server states."""
    image = studio.paint([stamp])
    return replace(image, data=odd_images.cut_short(image.data or b""), valid=False)


def disguised_page(studio: Studio, _stamp: Stamp) -> ImageFile:
    """A page served as a JPEG."""
    return replace(studio.file(odd_images.page_as_image(), "jpg", (200, 200)), valid=False)


def mistyped(studio: Studio, stamp: Stamp) -> ImageFile:
    """A JPEG served as a page: its bytes decide, so it is valid."""
    return replace(studio.paint([stamp]), content_type="text/html")


def looping(studio: Studio, stamp: Stamp) -> ImageFile:
    """An image that redirects to itself."""
    image = failing(Behaviour.REDIRECT, studio, stamp)
    return replace(image, location=f"http://i.imgur.com/{image.file_name}")


def misdirected(studio: Studio, stamp: Stamp) -> ImageFile:
    """An image that redirects to a link-local address."""
    return replace(failing(Behaviour.REDIRECT, studio, stamp), location=METADATA_ADDRESS)


def odd(encode: Callable[[Image.Image], bytes], extension: str, studio: Studio, stamp: Stamp) -> ImageFile:
    """A valid picture in an unusual form."""
    image = picture(studio, stamp)
    return studio.file(encode(image), extension, image.size)


def bomb(studio: Studio, _stamp: Stamp) -> ImageFile:
    """A decompression bomb."""
    side = odd_images.BOMB_SIDE_PX
    return replace(studio.file(odd_images.bomb_png(), "png", (side, side)), valid=False)


def flat(studio: Studio, _stamp: Stamp) -> ImageFile:
    """The recording's one picture of one colour."""
    return studio.file(odd_images.flat_jpeg(), "jpg", (200, 200))


removed = partial(failing, Behaviour.REMOVED)

GROUPS: tuple[tuple[str, tuple[Maker, ...]], ...] = (
    ("images that may not be had", (removed, partial(failing, Behaviour.OPTED_OUT))),
    ("a deleted image", (removed,)),
    ("animations", (animation, animation)),
    ("an animation", (animation,)),
    ("files cut short", (truncated, partial(failing, Behaviour.SHORT_BODY))),
    ("no images", (disguised_page, partial(failing, Behaviour.NOT_FOUND))),
    ("a mistyped image", (partial(failing, Behaviour.GONE), mistyped)),
    ("a busy host", (partial(patient, Behaviour.BUSY_FIRST), partial(patient, Behaviour.UNAVAILABLE_FIRST))),
    ("a slow image", (partial(patient, Behaviour.SLOW),)),
    ("a trickle", (partial(failing, Behaviour.TRICKLE),)),
    ("bad redirects", (looping, misdirected)),
    ("ink and depth", (partial(odd, odd_images.cmyk_jpeg, "jpg"), partial(odd, odd_images.deep_png, "png"))),
    (
        "palette and orientation",
        (
            partial(odd, odd_images.transparent_palette_png, "png"),
            partial(odd, odd_images.rotated_jpeg, "jpg"),
        ),
    ),
    ("a bomb", (bomb,)),
    ("one colour", (flat,)),
)


def renamed(studio: Studio) -> Post:
    """A post whose page links its JPEGs as .jpeg, which redirects to .jpg."""
    media = [
        replace(medium, address_extension="jpeg" if medium.image.extension == "jpg" else None)
        for medium in studio.album_media(None, GOOD_PICTURES)
    ]
    return draft(studio, make_album(studio, media), "Canvases under other names", notes=["renamed"])


def busy_page(studio: Studio) -> Post:
    """A post whose album page is unavailable at first."""
    album = make_album(studio, studio.album_media(None, GOOD_PICTURES))
    album = replace(album, behaviour=Behaviour.UNAVAILABLE_FIRST)
    return draft(studio, album, "Canvases behind a busy page", notes=["busy-page"])


PECULIAR_CAPTIONS = (
    ("A pencil & a pen", "Two <small> things & “nothing” more."),
    (None, "First line of two.\nSecond line of two."),
    (None, "More stamps at http://www.tuxpaint.org/ for everyone."),
    ("Ein Füller, un été, señal", "ペンギン пингвин πιγκουίνος and a penguin."),
    ("   ", "\n"),
)


def peculiar_captions(studio: Studio) -> Post:
    """A post with entities, line breaks, an address, other scripts and a blank in its captions."""
    media = [
        Medium(image=studio.paint([studio.deck.deal(None, set())]), title=title, description=description)
        for title, description in PECULIAR_CAPTIONS
    ]
    album = Album(id=studio.identifiers.album(), title="Notes", media=tuple(media), style=PageStyle.CONTAINERS)
    return draft(studio, album, "Notes under pictures", notes=["peculiar-captions"])
