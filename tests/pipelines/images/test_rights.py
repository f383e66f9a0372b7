"""Who made a picture and who may use it, as its file says: XMP, IPTC, EXIF."""

from dataclasses import asdict

import msgspec
import pyarrow as pa
from picture_files import file_of, noise
from PIL import ExifTags, Image

from pipelines.images.metadata import read_metadata
from schemas.metadata import RIGHTS_TYPE, Rights

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


def picture(**options: object) -> bytes:
    return file_of(noise(60, 40), "JPEG", **options)


def rights_of(data: bytes) -> Rights | None:
    return read_metadata(data)[1]


def test_xmp_says_whose_it_is_and_what_for() -> None:
    assert rights_of(picture(xmp=XMP.encode())) == Rights(
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
    assert rights_of(picture(exif=exif)) == Rights(creator="C. Camera", copyright="(c) camera")
    assert rights_of(picture(exif=exif, xmp=XMP.encode())).creator == "A. Author; B. Author"
    assert rights_of(picture()) is None


def test_a_row_of_the_table_gives_the_same_rights() -> None:
    rights = Rights(creator="x", data_mining="y")
    (row,) = pa.array([asdict(rights)], RIGHTS_TYPE).to_pylist()
    assert msgspec.convert(row, Rights | None) == rights
