"""What a picture's file says of it, whoever wrote it and however badly.

Among it who made it and who may use it: XMP, IPTC, EXIF.
"""

import struct
from dataclasses import asdict

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from picture_files import file_of as as_file
from picture_files import noise
from PIL import ExifTags, Image

from pipelines.images.inspect import inspect_image
from pipelines.images.metadata import MAX_BLOCK_BYTES
from pipelines.images.metadata import read_metadata as read_both
from pipelines.settings import FingerprintName, ImagesConfig
from schemas.codecs import ImageRejected
from schemas.metadata import MAX_KEYWORDS, MAX_TEXT, RIGHTS_TYPE, Metadata, Rights

BOAT = """<?xpacket begin="" id="W5M0MpCehiHzreSzNTczkc9d"?>
<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
<rdf:Description rdf:about="" xmlns:dc="http://purl.org/dc/elements/1.1/"
  xmlns:photoshop="http://ns.adobe.com/photoshop/1.0/" xmlns:Iptc4xmpCore="http://iptc.org/std/Iptc4xmpCore/1.0/xmlns/"
  photoshop:Headline="Flut in Köln" photoshop:DateCreated="2021-07-15T09:30:00+02:00" photoshop:City="Köln">
  <photoshop:Country>Deutschland</photoshop:Country><Iptc4xmpCore:Location>Rheinufer</Iptc4xmpCore:Location>
  <photoshop:Credit>dpa</photoshop:Credit>
  <dc:description><rdf:Alt><rdf:li xml:lang="de">Ein Boot</rdf:li>
    <rdf:li xml:lang="x-default">A boat</rdf:li></rdf:Alt></dc:description>
  <dc:subject><rdf:Bag><rdf:li>Flut</rdf:li><rdf:li>Rhein</rdf:li><rdf:li>Flut</rdf:li></rdf:Bag></dc:subject>
</rdf:Description></rdf:RDF></x:xmpmeta><?xpacket end="w"?>"""


def read_metadata(data: bytes) -> Metadata | None:
    return read_both(data)[0]


def file_of(kind: str = "JPEG", **options: object) -> bytes:
    return as_file(noise(60, 40), kind, **options)


def iptc(*datasets: tuple[int, bytes]) -> bytes:
    """Return the APP13 segment of IPTC datasets of record 2, by IIM 4.2 and Photoshop's image resources."""
    block = b"".join(struct.pack(">BBBH", 0x1C, 2, number, len(value)) + value for number, value in datasets)
    resource = b"8BIM\x04\x04\0\0" + struct.pack(">I", len(block)) + block + b"\0" * (len(block) % 2)
    body = b"Photoshop 3.0\0" + resource
    return b"\xff\xed" + struct.pack(">H", len(body) + 2) + body


def exif(**values: str) -> Image.Exif:
    found = Image.Exif()
    for name, value in values.items():
        if name == "DateTimeOriginal":
            found.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.DateTimeOriginal] = value
        else:
            found[ExifTags.Base[name]] = value.encode()  # Pillow itself would write ASCII alone
    return found


def test_a_plain_picture_says_nothing() -> None:
    assert read_metadata(file_of()) is None


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_xmp_is_read_of_every_format_that_has_it(kind: str) -> None:
    from PIL.PngImagePlugin import PngInfo

    options: dict[str, object] = {"xmp": BOAT.encode()}
    if kind == "PNG":
        info = PngInfo()
        info.add_itxt("XML:com.adobe.xmp", BOAT)
        options = {"pnginfo": info}
    elif kind == "TIFF":
        options = {"tiffinfo": {700: BOAT.encode()}}
    assert read_metadata(file_of(kind, **options)) == Metadata(
        title="Flut in Köln",
        caption="A boat",
        credit="dpa",
        date="2021-07-15",
        place="Rheinufer, Köln, Deutschland",
        keywords=("Flut", "Rhein"),
    )


def test_iptc_is_read_in_the_encoding_it_is_in() -> None:
    datasets = [
        (105, "Élection à Lyon".encode()),
        (120, "Zwei Männer".encode("cp1252")),
        (80, b"A. Author"),
        (116, b"(c) agency"),
        (55, b"20190501"),
        (90, b"Lyon"),
        (101, b"France"),
        (25, b"vote"),
        (25, b"city hall"),
    ]
    assert read_metadata(file_of(extra=iptc(*datasets))) == Metadata(
        title="Élection à Lyon",
        caption="Zwei Männer",
        credit="A. Author",
        rights="(c) agency",
        date="2019-05-01",
        place="Lyon, France",
        keywords=("vote", "city hall"),
    )


def test_exif_is_read_and_what_cameras_say_by_themselves_is_not() -> None:
    said = exif(ImageDescription="A café", Artist="B", Copyright="C", DateTimeOriginal="2018:12:31 23:59:59")
    assert read_metadata(file_of(exif=said)) == Metadata(caption="A café", credit="B", rights="C", date="2018-12-31")
    assert read_metadata(file_of(exif=exif(ImageDescription="OLYMPUS DIGITAL CAMERA"))) is None


def test_xmp_counts_before_iptc_and_iptc_before_exif() -> None:
    data = file_of(
        xmp=BOAT.replace('photoshop:City="Köln"', "").encode(),
        extra=iptc((105, b"Other"), (116, b"By IPTC")),
        exif=exif(Copyright="By EXIF", Artist="By EXIF", ImageDescription="By EXIF"),
    )
    found = read_metadata(data)
    assert (found.title, found.caption, found.credit, found.rights) == ("Flut in Köln", "A boat", "dpa", "By IPTC")


def test_fields_are_bounded_and_in_one_line() -> None:
    words = "".join(f"<rdf:li>w{n}</rdf:li>" for n in range(500))
    said = BOAT.replace("A boat", "a\x85b\u2028c " * 5000).replace("<rdf:li>Flut</rdf:li>", words, 1)
    found = read_metadata(file_of(xmp=said.encode()))
    assert (found.caption, len(found.keywords)) == (("a b c " * MAX_TEXT)[:MAX_TEXT].strip(), MAX_KEYWORDS)


def bomb() -> str:
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))
    return f'<!DOCTYPE x [<!ENTITY e0 "ha">{entities}]>' + BOAT.replace("A boat", "&e9;")


@pytest.mark.parametrize(
    "said",
    [
        bomb(),
        BOAT[:300],
        "<a>" * 9_000,
        '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>' + BOAT.replace("A boat", "&e;"),
        BOAT.replace("2021-07-15T09:30:00+02:00", "2021-99-99").replace("A boat", "\ufffe"),
    ],
)
def test_hostile_xmp_costs_no_picture_and_leaves_the_rest(said: str) -> None:
    data = file_of(xmp=said.encode("utf-8", "surrogatepass"), exif=exif(Copyright="C"))
    found = inspect_image(data, config=ImagesConfig(), fingerprint=FingerprintName.PHASH)[0].metadata
    assert (found.rights, found.date) == ("C", None)
    assert "passwd" not in repr(found) and "ha" * 9 not in repr(found)


def test_a_block_beyond_the_limit_is_not_parsed() -> None:
    said = BOAT.replace("A boat", "x" * MAX_BLOCK_BYTES)
    assert read_metadata(file_of("WEBP", xmp=said.encode())) is None
    assert read_metadata(file_of("WEBP", xmp=BOAT.encode())) is not None


@settings(deadline=None)
@given(where=st.integers(0, 3000), garbage=st.binary(min_size=1, max_size=40))
def test_broken_bytes_never_stop_a_build(where: int, garbage: bytes) -> None:
    changed = BROKEN[: 20 + where] + garbage + BROKEN[20 + where + len(garbage) :]
    try:
        found = inspect_image(changed, config=ImagesConfig(), fingerprint=FingerprintName.PHASH)[0].metadata
    except ImageRejected:
        return
    texts = () if found is None else (found.title, found.caption, found.credit, found.rights, *found.keywords)
    assert all(text is None or 0 < len(text) <= MAX_TEXT for text in texts)


BROKEN = file_of(xmp=BOAT.encode(), extra=iptc((120, b"caption"), (25, b"word")), exif=exif(Copyright="C", Artist="A"))


XMP = """<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
<rdf:Description rdf:about="" xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:plus="http://ns.useplus.org/ldf/xmp/1.0/"
  xmlns:photoshop="http://ns.adobe.com/photoshop/1.0/" xmlns:xmpRights="http://ns.adobe.com/xap/1.0/rights/"
  xmlns:Iptc4xmpExt="http://iptc.org/std/Iptc4xmpExt/2008-02-29/" xmlns:cc="http://creativecommons.org/ns#"
  photoshop:Credit="A. Author / Agency"
  Iptc4xmpExt:DigitalSourceType="http://cv.iptc.org/newscodes/digitalsourcetype/trainedAlgorithmicMedia"
  plus:DataMining="http://ns.useplus.org/ldf/vocab/DMI-PROHIBITED-AIMLTRAINING">
  <dc:creator><rdf:Seq><rdf:li>A. Author</rdf:li><rdf:li>B. Author</rdf:li></rdf:Seq></dc:creator>
  <dc:rights><rdf:Alt><rdf:li xml:lang="x-default">(c) 2024 Agency</rdf:li></rdf:Alt></dc:rights>
  <cc:license rdf:resource="https://creativecommons.org/licenses/by-nc/4.0/"/>
  <xmpRights:UsageTerms><rdf:Alt><rdf:li xml:lang="x-default">Ask first.</rdf:li></rdf:Alt></xmpRights:UsageTerms>
</rdf:Description></rdf:RDF></x:xmpmeta>"""


def rights_of(data: bytes) -> Rights | None:
    return read_both(data)[1]


def test_xmp_says_whose_it_is_and_what_for() -> None:
    assert rights_of(file_of(xmp=XMP.encode())) == Rights(
        creator="A. Author; B. Author",
        credit="A. Author / Agency",
        copyright="(c) 2024 Agency",
        licence="https://creativecommons.org/licenses/by-nc/4.0/",
        terms="Ask first.",
        source_type="trainedAlgorithmicMedia",
        data_mining="DMI-PROHIBITED-AIMLTRAINING",
    )


def test_exif_fills_in_what_xmp_lacks() -> None:
    exif = Image.Exif()
    exif[ExifTags.Base.Artist], exif[ExifTags.Base.Copyright] = "C. Camera", "(c) camera"
    assert rights_of(file_of(exif=exif)) == Rights(creator="C. Camera", copyright="(c) camera")
    assert rights_of(file_of(exif=exif, xmp=XMP.encode())).creator == "A. Author; B. Author"
    assert rights_of(file_of()) is None


def test_a_row_of_the_table_gives_the_same_rights() -> None:
    rights = Rights(creator="x", data_mining="y")
    (row,) = pa.array([asdict(rights)], RIGHTS_TYPE).to_pylist()
    assert msgspec.convert(row, Rights | None) == rights
