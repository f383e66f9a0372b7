"""pictures.newsroom.example: the pictures of the news archive, as files of one folder. Standard library only."""

from pathlib import Path

from replies import Reply, Request, robots_reply, text_reply

HOST = "pictures.newsroom.example"


class NewsHost:
    """Serves `news/pictures/`; a recording without it has no picture here."""

    def __init__(self, recording: Path) -> None:
        self._files = {f"/pictures/{path.name}": path for path in (recording / "news" / "pictures").glob("*.jpg")}

    def answer(self, request: Request) -> Reply:
        """The reply: a picture whose name is known."""
        if request.path == "/robots.txt":
            return robots_reply()
        if request.path not in self._files:
            return text_reply(404, "no such picture\n")
        return Reply(status=200, headers={"Content-Type": "image/jpeg"}, body=self._files[request.path].read_bytes())
