"""RIGHTS: what a picture's file says of who may use it, a struct of the images table; bounded as METADATA is.

Embedded by agencies, cameras and generators: XMP (Dublin Core, Creative Commons, IPTC, PLUS), IPTC-IIM, EXIF; and C2PA,
whose claims are signed. All of it is a claim: C2PA proves whose, where the signer is known to be trusted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from schemas.tables import column, travels


@travels
@dataclass(frozen=True, slots=True)
class Claim:
    """The active claim of a C2PA manifest store.

    Attributes:
        generator: the program that made the claim.
        issuer: organisation in the signer's certificate; no list of trusted ones is asked.
        is_intact: whether signature and hashes fit the file; dates and revocation of certificates aside, so that the
            same bytes always give the same.
        source_type: as of `Rights`.
        training: uses for training and mining as `name: use`, sorted (`cawg.data_mining: notAllowed`).
    """

    generator: str | None = None
    issuer: str | None = None
    is_intact: bool = False
    source_type: str | None = None
    training: tuple[str, ...] = ()


@travels
@dataclass(frozen=True, slots=True)
class Rights:
    """What a picture's file says of its rights; None where it says nothing.

    Attributes:
        creator: who made it; several, separated by semicolons.
        credit: the credit line.
        copyright: the notice, as stated.
        licence: URL or name of a licence, or of the statement of rights.
        terms: usage terms, as stated.
        source_type: IPTC's digital source type, such as `trainedAlgorithmicMedia` or `digitalCapture`.
        data_mining: PLUS data mining, such as `DMI-PROHIBITED-AIMLTRAINING`.
        claim: of C2PA; None also where the library that reads it is not installed.
    """

    creator: str | None = None
    credit: str | None = None
    copyright: str | None = None
    licence: str | None = None
    terms: str | None = None
    source_type: str | None = None
    data_mining: str | None = None
    claim: Claim | None = None

    @classmethod
    def of(cls, row: Mapping[str, Any] | None) -> Rights | None:
        """Return the rights of a row's struct."""
        return msgspec.convert(row, cls | None)


_CLAIM = pa.struct(
    [
        column("generator", pa.string(), "program that made the claim", nullable=True),
        column("issuer", pa.string(), "organisation in the signer's certificate", nullable=True),
        column("is_intact", pa.bool_(), "whether signature and hashes fit the file"),
        column("source_type", pa.string(), "IPTC digital source type, its last part", nullable=True),
        column("training", pa.list_(pa.string()), "uses for training and mining, `name: use`"),
    ]
)
RIGHTS_TYPE = pa.struct(
    [
        column("creator", pa.string(), "who made it", nullable=True),
        column("credit", pa.string(), "credit line", nullable=True),
        column("copyright", pa.string(), "notice, as stated", nullable=True),
        column("licence", pa.string(), "URL or name of the licence", nullable=True),
        column("terms", pa.string(), "usage terms, as stated", nullable=True),
        column("source_type", pa.string(), "IPTC digital source type, its last part", nullable=True),
        column("data_mining", pa.string(), "PLUS data mining, its last part", nullable=True),
        column("claim", _CLAIM, "active claim of C2PA", nullable=True),
    ]
)
