"""What is forgotten leaves a mark in the pages' database, and no byte of its id, hash or title."""

from pathlib import Path

import pytest

from newsroom.decisions.database import METADATA, database_in, forget_on_pages, open_database
from newsroom.decisions.records import Action, Decision, Ranking, ShownPicture
from newsroom.decisions.store import Article, Store

GONE, KEPT = "a" * 40 + "b" * 24, "c" * 64
WORDS = ("GONE-DOCUMENT", GONE, "GONE-TITLE", "GONE-TEXT", "GONE-NOTE")


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_forgetting_leaves_marks_and_nothing_else_of_it(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    address = database_in(str(tmp_path)) if kind == "sqlite" else str(request.getfixturevalue("postgres"))
    of = {"dataset": "diy@v1", "model": "models:/linker/2"}
    pictures = (ShownPicture(image=GONE, score=1.0, title="GONE-TITLE"), ShownPicture(image=KEPT, score=0.5, title="b"))
    ranking = Ranking(texts={"headline": "x"}, models=("models:/linker/2",), dataset="diy@v1", pictures=pictures)
    with Store(open_database(address)) as log:
        label = Decision(
            action=Action.FITS,
            image=GONE,
            document="GONE-DOCUMENT",
            sentence=0,
            article="0" * 64,
            note="GONE-NOTE",
            **of,
        )
        log.decide(label)
        log.decide(Decision(action=Action.CHOOSE, image=GONE, **of), ranking)
        log.decide(Decision(action=Action.REJECT, image=KEPT, reason="quality", **of), ranking)
        log.keep_article(Article(texts={"headline": "GONE-TEXT"}, origin="diy@v1 GONE-DOCUMENT"))
        before = list(log.decisions())
        assert forget_on_pages(address, ["GONE-DOCUMENT"], [GONE], is_dry_run=True) == 4
        assert list(log.decisions()) == before
        assert forget_on_pages(address, ["GONE-DOCUMENT"], [GONE], is_dry_run=False) == 4
        after = list(log.decisions())
        assert [each.action for each in after] == [each.action for each in before] and after[2] == before[2]
        assert after[0].image == after[1].image and after[0].document.startswith("forgotten-")
        assert [each.title for each in log.rankings([ranking.digest])[ranking.digest].pictures] == ["forgotten", "b"]
        assert forget_on_pages(address, ["GONE-DOCUMENT"], [GONE], is_dry_run=False) == 0
    engine = open_database(address)
    with engine.connect() as connection:
        found = repr([connection.execute(table.select()).all() for table in METADATA.sorted_tables]).encode()
    if kind == "sqlite":
        found += b"".join(path.read_bytes() for path in (tmp_path / "pages").iterdir())
    assert b"forgotten" in found and not [word for word in WORDS if word.encode() in found]
    with pytest.raises(Exception, match="only grows"), engine.begin() as connection:
        connection.exec_driver_sql("UPDATE decisions SET who = 'x'")
    engine.dispose()
