"""GoodNews and VisualNews, as they are published, become the JSON Lines that the recipe `news` reads.

python examples/convert_news.py captioning_dataset.json goodnews.jsonl --splits img_splits.json --urls img_urls.json
python examples/convert_news.py origin/data.json visualnews.jsonl
multilink build news --set source.articles=goodnews.jsonl --set source.images=FOLDER ...

GoodNews      captioning_dataset.json
                  {"<article id>": {"headline": {"main": "..", ..}, "abstract": "..", "article": "..",
                                    "article_url": "..", "images": {"0": "<caption>", "1": ..}}, ...}
              img_urls.json      {"<article id>": {"0": "<URL>", "1": ..}, ...}
              img_splits.json    {"<article id>_<key>": "train", ...}
VisualNews    data.json
                  [{"id": 5, "caption": "..", "topic": "law_crime", "source": "bbc",
                    "image_path": "./bbc/images/0000/005.jpg", "article_path": "./bbc/articles/0000/005.txt"}, ...]

GoodNews gives a record for each picture: its file is `<article id>_<key>.jpg`, and so is the record's id. With the file
of URLs, a picture is fetched from its own. With the file of splits, pictures that it does not name are left out.
VisualNews has no headlines; its texts are files beside `data.json`, and one that is not there is left out. What is of
another type than published goes into the record as it is: the build reports it.
"""

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

Record = dict[str, Any]


def read_goodnews(
    articles: Mapping[str, msgspec.Raw], splits: Mapping[str, str], urls: Mapping[str, Any]
) -> Iterator[Record]:
    """Yield a record for each picture of each article."""
    for article_id, raw in articles.items():
        article = object_in(raw)
        headline = article.get("headline") or None  # an empty one is an empty list in the Times' own interface
        texts = {
            "headline": headline.get("main") if isinstance(headline, dict) else headline,
            "lead": article.get("abstract"),
            "body": article.get("article"),
            "url": article.get("article_url"),
        }
        for key, caption in dict(article.get("images") or {}).items():
            name = f"{article_id}_{key}"
            if not splits or name in splits:
                image = urls.get(article_id, {}).get(key) or f"{name}.jpg"
                yield {"id": name, "image": image, "caption": caption, "split": splits.get(name), **texts}


def read_visualnews(items: list[msgspec.Raw], folder: Path) -> Iterator[Record]:
    """Yield a record for each item."""
    for raw in items:
        item = object_in(raw)
        yield {
            "id": item.get("id"),
            "image": item.get("image_path", "").removeprefix("./"),
            "caption": item.get("caption"),
            "body": text_in(folder, item.get("article_path") or ""),
            "split": item.get("split"),
        }


def object_in(raw: msgspec.Raw) -> Record:
    """Return an object, or an empty one in place of another value."""
    value = json.loads(bytes(raw), strict=False)
    return value if isinstance(value, dict) else {}


def text_in(folder: Path, path: str) -> str | None:
    """Return the text of a file below a folder; None where there is none, or where it is no UTF-8."""
    file = (folder / path.strip()).resolve()
    if not file.is_relative_to(folder.resolve()) or not file.is_file():
        return None
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def convert(path: Path, output: Path, splits: Path | None = None, urls: Path | None = None) -> int:
    """Write the records of a published file and return their number."""
    values = msgspec.json.decode(path.read_bytes(), type=dict[str, msgspec.Raw] | list[msgspec.Raw])
    if isinstance(values, list):
        records = read_visualnews(values, path.parent)
    else:
        named, addresses = (json.loads(each.read_bytes()) if each else {} for each in (splits, urls))
        records = read_goodnews(values, named, addresses)
    count = 0
    with output.open("w", encoding="utf-8") as file:
        for count, record in enumerate(records, start=1):  # noqa: B007 - the last one is the number of records
            written = {name: value for name, value in record.items() if value is not None}
            file.write(json.dumps({**written, "language": "en"}) + "\n")
    return count


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--splits", type=Path, help="img_splits.json of GoodNews")
    parser.add_argument("--urls", type=Path, help="img_urls.json of GoodNews")
    given = parser.parse_args()
    print(convert(given.input, given.output, given.splits, given.urls), "records")
