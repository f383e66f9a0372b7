"""Pictures of the lake, by an address that names what they show: `/pictures/NAME@VERSION/HASH.jpg?part=...`."""

from urllib.parse import quote, urlencode

from fastapi import APIRouter
from fastapi.responses import Response

from orchestration.pages.state import Shared

KEPT_FOR_EVER = {"cache-control": "private, max-age=31536000, immutable"}
router = APIRouter()


def picture_address(reference: str, part: str, image: str) -> str:
    """Return the address of a picture's copy.

    Args:
        reference: NAME@VERSION.
        part: path of the images part that holds it.
        image: content hash.
    """
    return f"/pictures/{quote(reference)}/{quote(image)}.jpg?{urlencode({'part': part})}"


@router.get("/pictures/{reference}/{image}.jpg")
def picture(shared: Shared, reference: str, image: str, part: str) -> Response:
    """Answer with a copy; its address names its content, so that a browser asks once."""
    return Response(shared.copies.jpeg(reference, part, image), media_type="image/jpeg", headers=KEPT_FOR_EVER)
