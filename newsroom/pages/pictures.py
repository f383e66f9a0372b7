"""Pictures of the lake, at the addresses that `newsroom.labels.linked.picture_address` returns; and uploads."""

from io import BytesIO

from fastapi import APIRouter
from fastapi.responses import Response
from PIL import Image, ImageOps

from newsroom.pages.state import Shared

KEPT = {"cache-control": "private, max-age=600"}  # a picture may be forgotten: a browser asks again after ten minutes
UPLOAD_PX = 512  # of the longer side
router = APIRouter()


@router.get("/pictures/{reference}/{image}.jpg")
def picture(shared: Shared, reference: str, image: str, part: str = "") -> Response:
    """Answer with a copy of a picture."""
    return Response(shared.copies.jpeg(reference, image, part), media_type="image/jpeg", headers=KEPT)


@router.get("/uploads/{key}.jpg")
def upload(shared: Shared, key: str) -> Response:
    """Answer with an uploaded picture, drawn anew: nothing of the file but its pixels comes back."""
    return Response(small_copy(shared.store.upload(key)), media_type="image/jpeg", headers=KEPT)


def small_copy(data: bytes) -> bytes:
    """Return a JPEG of an image file, at most UPLOAD_PX wide and high."""
    with Image.open(BytesIO(data)) as opened:
        drawn = ImageOps.exif_transpose(opened).convert("RGB")
    drawn.thumbnail((UPLOAD_PX, UPLOAD_PX))
    out = BytesIO()
    drawn.save(out, "JPEG", quality=85)
    return out.getvalue()
