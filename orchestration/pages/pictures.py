"""Pictures of the lake, at the addresses that `orchestration.links.linked.picture_address` returns."""

from fastapi import APIRouter
from fastapi.responses import Response

from orchestration.pages.state import Shared

KEPT_FOR_EVER = {"cache-control": "private, max-age=31536000, immutable"}
router = APIRouter()


@router.get("/pictures/{reference}/{image}.jpg")
def picture(shared: Shared, reference: str, image: str, part: str) -> Response:
    """Answer with a copy; its address names its content, so that a browser asks once."""
    return Response(shared.copies.jpeg(reference, part, image), media_type="image/jpeg", headers=KEPT_FOR_EVER)
