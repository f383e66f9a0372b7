"""Who made a picture and who may use it, as its file says: XMP, IPTC, EXIF, and signed claims of C2PA."""

import datetime
import io
import json
from dataclasses import asdict
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from picture_files import file_of, noise
from PIL import ExifTags, Image

from pipelines.images.metadata import read_metadata
from schemas.metadata import RIGHTS_TYPE, Claim, Rights

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


def signed(training: str = "notAllowed") -> bytes:
    """Return a picture with a claim that c2pa-python itself made and signed, by a certificate of nobody's."""
    c2pa = pytest.importorskip("c2pa", reason="c2pa-python (extra `claims`) is not installed")
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    def certificate(name: str, key: Any, issuer: str, issuer_key: Any, *extensions: tuple[Any, bool]) -> Any:
        def named(common: str) -> x509.Name:
            organisation = x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Test Agency")
            return x509.Name([organisation, x509.NameAttribute(NameOID.COMMON_NAME, common)])

        builder = x509.CertificateBuilder(named(issuer), named(name), key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(datetime.datetime(2024, 1, 1))
        builder = builder.not_valid_after(datetime.datetime(2124, 1, 1))
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
        for extension, is_critical in (*extensions, (identifier, False)):
            builder = builder.add_extension(extension, is_critical)
        return builder.sign(issuer_key, hashes.SHA256())

    def usage(*, signs: bool) -> x509.KeyUsage:
        return x509.KeyUsage(signs, False, False, False, False, not signs, not signs, False, False)

    root, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    chain = [
        certificate(
            *("Signer", key, "Root", root),
            (x509.BasicConstraints(False, None), True),
            (usage(signs=True), True),
            (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.EMAIL_PROTECTION]), False),
        ),
        certificate("Root", root, "Root", root, (x509.BasicConstraints(True, None), True), (usage(signs=False), True)),
    ]
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    info = c2pa.C2paSignerInfo(b"es256", b"".join(each.public_bytes(pem) for each in chain), private, None)
    source = "http://cv.iptc.org/newscodes/digitalsourcetype/trainedAlgorithmicMedia"
    uses = {"cawg.ai_generative_training": {"use": training}, "cawg.data_mining": {"use": "allowed"}}
    claim = {
        "claim_generator_info": [{"name": "generator", "version": "7"}],
        "assertions": [
            {"label": "c2pa.actions", "data": {"actions": [{"action": "c2pa.created", "digitalSourceType": source}]}},
            {"label": "cawg.training-mining", "data": {"entries": uses}},
        ],
    }
    target = io.BytesIO()
    with c2pa.Builder(json.dumps(claim)) as builder:
        builder.sign(c2pa.Signer.from_info(info), "image/jpeg", io.BytesIO(picture()), target)
    return target.getvalue()


def test_a_signed_claim_is_read_and_one_of_another_picture_is_broken() -> None:
    data = signed()
    expected = Claim(
        generator="generator 7",
        issuer="Test Agency",
        is_intact=True,
        source_type="trainedAlgorithmicMedia",
        training=("cawg.ai_generative_training: notAllowed", "cawg.data_mining: allowed"),
    )
    assert rights_of(data) == Rights(claim=expected)
    forged = bytearray(data)
    forged[-20] ^= 1  # a bit of the picture
    found = rights_of(bytes(forged)).claim
    assert (found.is_intact, found.issuer) == (False, "Test Agency")


def test_what_only_looks_like_a_claim_costs_nothing() -> None:
    assert rights_of(picture(comment=b"jumb c2pa")) is None
    data = signed()
    at = data.index(b"jumb") + 40
    assert rights_of(data[:at] + bytes(400) + data[at + 400 :]) is None


def test_a_row_of_the_table_gives_the_same_rights() -> None:
    claim = Claim(generator="g", is_intact=True, training=("a: b",))
    rights = Rights(creator="x", claim=claim)
    (row,) = pa.array([asdict(rights)], RIGHTS_TYPE).to_pylist()
    assert msgspec.convert(row, Rights | None) == rights
