"""What these pages hand to a browser and take back unchanged: sealed, so that nobody else makes, reads or changes it.

A seal is a Fernet token (AES-128 and HMAC-SHA256, with the time it was made). Its key follows from the installation's
secret and a purpose, so that a token of one purpose is nothing for another.
"""

import base64
import hashlib
import time
from dataclasses import dataclass

from cryptography.fernet import Fernet, InvalidToken


@dataclass(frozen=True, slots=True)
class Seal:
    """Seals of one purpose.

    Attributes:
        secret: of the installation.
        purpose: of what is sealed.
        lifetime_s: how long it is taken back.
    """

    secret: bytes
    purpose: str
    lifetime_s: int

    def sealed(self, data: bytes = b"", *, now: float | None = None) -> str:
        """Return a token that holds some bytes."""
        return self._fernet.encrypt_at_time(data, int(now or time.time())).decode()

    def opened(self, token: str, *, now: float | None = None) -> bytes | None:
        """Return the bytes of a token; None where it was made by somebody else, or too long ago."""
        try:
            return self._fernet.decrypt_at_time(token.encode(), self.lifetime_s, int(now or time.time()))
        except InvalidToken:
            return None

    @property
    def _fernet(self) -> Fernet:
        digest = hashlib.sha256(self.purpose.encode() + b"\n" + self.secret).digest()
        return Fernet(base64.urlsafe_b64encode(digest))
