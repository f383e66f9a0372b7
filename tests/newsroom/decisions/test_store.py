"""The log of decisions in SQLite and in a real PostgreSQL: what is acknowledged is kept, and nothing is changed."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Barrier

import pytest
import sqlalchemy as sql

from newsroom.decisions import store
from newsroom.decisions.database import DECISIONS, METADATA, connected, database_in, forget_on_pages, open_database
from newsroom.decisions.records import Action, Decision, Objection, Ranking, ShownPicture, article_digest, standing
from newsroom.decisions.store import Article, ConflictError, Store
from schemas.messages import BuildError, NotFoundError, UsageError
from schemas.versions import plain

HASHES = [f"{number:064x}" for number in range(5)]
RANKING = Ranking(
    texts={"headline": "Flut in Köln", "body": "Der Rhein\nsteigt.\x00"},
    language="de",
    models=("models:/m/3",),
    dataset="archive@1a2b",
    indexes=("lake/indexes/archive/1a2b/m-3",),
    query="where=date%3E2019",
    pictures=tuple(
        ShownPicture(image=image, score=1.0 - rank, similarity=0.1 + 0.2, probability=1 / 3, title=f"No. {rank}")
        for rank, image in enumerate(HASHES)
    ),
)
RIVALS = ("models:/m/3", "models:/m/4")
BLIND = replace(
    RANKING, models=RIVALS,
    pictures=tuple(replace(each, model=RIVALS[rank % 2]) for rank, each in enumerate(RANKING.pictures)),
)  # fmt: skip
CHOICE = Decision(action=Action.CHOOSE, image=HASHES[1], dataset="archive@1a2b", model="models:/m/3", who="Jo Döe")
LABEL = Decision(
    action=Action.FITS, image=HASHES[0], dataset="d@1", model="models:/m/3", document="7", sentence=0, article="sample"
)
# Writes choices until it is killed, and says the number of each once it is in the log.
WRITER = """
import sys
from dataclasses import replace
from newsroom.decisions.database import open_database
from newsroom.decisions.store import Store
from newsroom.decisions.records import Action, Decision, Ranking, ShownPicture

log, count = Store(open_database(sys.argv[1])), int(sys.argv[2])
image = "a" * 64
for number in range(count):
    ranking = Ranking(
        texts={"headline": f"{sys.argv[3]} {number}"}, models=("m",), dataset="d@1",
        pictures=(ShownPicture(image=image, score=0.5),),
    )
    decision = Decision(action=Action.CHOOSE, image=image, dataset="d@1", note=f"{sys.argv[3]} {number}")
    print(log.decide(decision, ranking).number, flush=True)
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return database_in(str(tmp_path)) if request.param == "sqlite" else request.getfixturevalue("postgres")


def test_a_decision_comes_back_with_its_ranking(address: str) -> None:
    with Store(open_database(address)) as log:
        upload, secret = log.keep_upload(b"picture"), log.secret()
        rejection = replace(CHOICE, action=Action.REJECT, image=HASHES[2], reason=Objection.RIGHTS, note="§ 22")
        first, rejected = (log.decide(each, RANKING) for each in (CHOICE, rejection))
        label = log.decide(LABEL)
    assert (first.number, rejected.number, label.number) == (1, 2, 3)
    digest = article_digest({"headline": "Flut in Köln", "body": "Der Rhein steigt.\x00"})
    assert first.article == RANKING.article == digest
    with Store(open_database(address)) as log:
        assert (log.keep_upload(b"picture"), log.upload(upload), log.secret()) == (upload, b"picture", secret)
        assert list(log.decisions()) == [first, rejected, label]
        assert list(log.decisions(article=RANKING.article)) == [first, rejected]
        assert log.latest(2) == [label, rejected] and log.latest(5, before=3) == [rejected, first]
        assert log.rankings([first.ranking, "unknown"]) == {RANKING.digest: RANKING}
    assert first.at[:2] == "20" and first.at.endswith("+00:00") and label.ranking == ""


@pytest.mark.parametrize("statement", ["UPDATE {} SET article = 'x'", "DELETE FROM {}"])
@pytest.mark.parametrize("table", ["decisions", "rankings"])
def test_the_database_refuses_changes(address: str, statement: str, table: str) -> None:
    engine = open_database(address)
    with Store(engine) as log:
        log.decide(CHOICE, BLIND)
        with pytest.raises(sql.exc.DatabaseError, match="only grows"), engine.begin() as connection:
            connection.execute(sql.text(statement.format(table)))
        assert [each.image for each in log.decisions()] == [CHOICE.image]
        assert log.rankings([BLIND.digest])


def test_a_decision_made_on_an_old_page_is_refused(address: str) -> None:
    """A stale tab can neither repeat nor undo what another tab did; the log says what stands."""
    with Store(open_database(address)) as log:
        chosen = log.decide(CHOICE, RANKING, after=0)
        for seen in (0, chosen.number + 1):
            with pytest.raises(ConflictError):
                log.decide(replace(CHOICE, action=Action.WITHDRAW), RANKING, after=seen)
            assert list(log.decisions()) == [chosen]
        listed = log.decide(replace(CHOICE, image=HASHES[2], action=Action.SHORTLIST), RANKING, after=0)
        back = log.decide(replace(CHOICE, action=Action.WITHDRAW), RANKING, after=chosen.number)
        assert list(log.decisions()) == [chosen, listed, back]
        blind = log.decide(replace(CHOICE, model=""), BLIND, after=0)  # no choice elsewhere is one of the comparison
        with pytest.raises(ConflictError):
            log.decide(replace(CHOICE, model=""), BLIND, after=back.number)
        assert log.decide(replace(CHOICE, model=""), BLIND, after=blind.number)


def test_of_two_who_decide_at_once_one_is_refused(address: str) -> None:
    with Store(open_database(address)) as log, ThreadPoolExecutor(8) as threads:

        def decide(number: int) -> bool:
            with suppress(ConflictError):
                return bool(log.decide(replace(CHOICE, note=str(number)), RANKING, after=0))
            return False

        assert sum(threads.map(decide, range(16))) == 1
        assert len(list(log.decisions())) == 1


def test_pages_read_what_they_show_and_no_more(tmp_path: Path) -> None:
    """However long the log: each question that a page asks is answered by an index, or reads one row an article."""
    engine = open_database(f"sqlite:///{tmp_path}/x.sqlite")
    asked: list[tuple[str, object]] = []
    with Store(engine) as log:
        log.decide(CHOICE, RANKING)
        last = log.decide(replace(CHOICE, model=""), BLIND)
        sql.event.listen(engine, "before_cursor_execute", lambda *given: asked.append((given[2], given[3])))
        log.decide(CHOICE, RANKING, after=last.number)
        log.decide(replace(CHOICE, model=""), BLIND, after=last.number)
        list(log.decisions(article=RANKING.article))
        list(log.compared(RANKING.article, BLIND.models))
        log.latest(100, before=9)
        log.rankings([RANKING.digest])
        assert log.subjects([RANKING.digest]) == {RANKING.digest: ("Flut in Köln", RANKING.query)}
        reads = [(statement, parameters) for statement, parameters in asked if statement.startswith("SELECT")]
        with engine.connect() as connection:
            plans = [connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {each}", about).all() for each, about in reads]
    assert len(reads) == 7
    assert [row.detail for plan in plans for row in plan if row.detail.startswith("SCAN")] == []


def test_nothing_acknowledged_is_lost_when_the_process_is_killed(address: str) -> None:
    command = [sys.executable, "-c", WRITER, address, "1000000", "w"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    ) as writer:
        numbers = [int(writer.stdout.readline()) for _ in range(20)]
        writer.send_signal(signal.SIGKILL)  # in the middle of the next write
        numbers += [int(line) for line in writer.stdout.read().split("\n")[:-1]]
    assert writer.returncode == -signal.SIGKILL
    with Store(open_database(address)) as log:
        found = list(log.decisions())
        assert [each.number for each in found][: len(numbers)] == numbers
        assert len(found) <= len(numbers) + 1  # one that was not acknowledged yet
        assert [each.note for each in found] == [f"w {number}" for number in range(len(found))]
        assert log.rankings(each.ranking for each in found).keys() == {each.ranking for each in found}
        assert log.decide(CHOICE, RANKING).number > found[-1].number  # and it goes on


def test_pages_that_start_at_once_make_the_tables_once(address: str) -> None:
    """And one that is ready writes while the others look whether all is there."""
    together = Barrier(8)

    def started(number: int) -> list[int]:
        together.wait(timeout=120)
        with Store(open_database(address)) as log:
            log.keep_article(Article(texts={"headline": f"Flut {number}"}))
            return [log.decide(CHOICE, RANKING).number for _ in range(5)]

    with ThreadPoolExecutor(8) as threads:
        told = [number for numbers in threads.map(started, range(8)) for number in numbers]
    with Store(open_database(address)) as log:
        assert sorted(told) == [each.number for each in log.decisions()] and len(set(told)) == 40


def test_what_nobody_decided_on_expires(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(open_database(address)) as opened:
        unused, used, upload = {"headline": "unused"}, {"headline": "used"}, opened.keep_upload(b"picture")
        keys = [opened.keep_article(Article(texts=texts)) for texts in (unused, used)]
        picture = ShownPicture(image="a" * 64, score=1.0)
        ranking = Ranking(texts=used, models=("m",), dataset="d@1", pictures=(picture,))
        opened.decide(Decision(action=Action.REJECT, reason=Objection.USED, image="a" * 64, dataset="d@1"), ranking)
        assert opened.expire(30) == 0
        monkeypatch.setattr(store, "_now", lambda shift=timedelta(): f"{3000 + shift.days}-01-01")
        new = opened.keep_article(Article(texts={"headline": "new"}))
        assert opened.expire(0) == 2  # the unused text and the picture; the newest stay
        assert opened.article(keys[1]).texts == used and opened.article(new)
        for gone, find in ((keys[0], opened.article), (upload, opened.upload)):
            with pytest.raises(NotFoundError, match="it was deleted or never saved"):
                find(gone)


def test_what_cannot_be_a_decision_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with Store(open_database(f"sqlite:///{tmp_path}/x.sqlite")) as log:
        with pytest.raises(UsageError, match="expected a picture of the ranking"):
            log.decide(CHOICE)
        with pytest.raises(UsageError, match="expected a picture of the ranking"):
            log.decide(Decision(action=Action.CHOOSE, image="f" * 64, dataset="archive@1a2b"), RANKING)
        with pytest.raises(UsageError, match="or a label"):
            log.decide(LABEL, RANKING)
        assert list(log.decisions()) == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"image": "../../etc/passwd"}, "content hash"),
        ({"action": Action.REJECT}, "expected a reason"),
        ({"reason": Objection.USED}, "expected a reason"),
        ({"document": "7", "sentence": 1}, "expected the number of a sentence"),
        ({"action": Action.FITS, "document": "7"}, "expected the number of a sentence"),
        ({"action": Action.FITS, "sentence": 1}, "expected the document"),
        ({"note": "x" * 2_001}, "note of at most"),
    ],
)
def test_what_is_no_decision_is_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        replace(CHOICE, **wrong)


def test_the_last_word_counts() -> None:
    def said(number: int, action: Action, image: str = HASHES[0], **values: object) -> Decision:
        reason = Objection.OTHER if action is Action.REJECT else None
        return Decision(action=action, image=image, dataset="d@1", number=number, reason=reason, **values)  # type: ignore[arg-type]

    label = {"document": "7", "article": "sample", "model": "models:/m/3"}
    decisions = [
        said(1, Action.SHORTLIST, article="a"),
        said(2, Action.CHOOSE, article="a"),
        said(3, Action.CHOOSE, article="b"),
        said(4, Action.REJECT, HASHES[1], article="a"),
        said(5, Action.WITHDRAW, article="b"),
        said(6, Action.FITS, sentence=2, **label),
        said(7, Action.NONE_FITS, **label),
        said(8, Action.FITS, sentence=2, **label, who="Jo"),
    ]
    assert [each.number for each in standing(decisions)] == [2, 4, 7, 8]


def test_an_address_of_another_kind_is_one_clear_line(tmp_path: Path) -> None:
    for address in ("mysql://host/x", "decisions.db", "sqlite"):
        with pytest.raises(UsageError, match="expected sqlite:///PATH or postgresql"):
            open_database(address)
    with pytest.raises(NotFoundError, match="no database is there"):
        open_database(f"sqlite:///{tmp_path}/none.sqlite", must_exist=True)
    assert database_in(str(tmp_path)) == f"sqlite:///{tmp_path}/pages/pages.sqlite"
    with pytest.raises(UsageError, match="object store"):
        database_in("s3://bucket/lake?region=eu-central-1")
    (tmp_path / "other.sqlite").write_text("this is no database, however long one reads on in it")
    with pytest.raises(BuildError, match="not a database"):
        open_database(f"sqlite:///{tmp_path}/other.sqlite")


GONE, KEPT = "a" * 40 + "b" * 24, "c" * 64
WORDS = ("GONE-DOCUMENT", GONE, "GONE-TITLE", "GONE-TEXT", "GONE-NOTE")


def test_forgetting_leaves_marks_and_nothing_else_of_it(address: str, tmp_path: Path) -> None:
    """What is forgotten leaves a mark in the database, and no byte of its id, hash or title."""
    of = {"dataset": "diy@v1", "model": "models:/linker/2"}
    pictures = (ShownPicture(image=GONE, score=1.0, title="GONE-TITLE"), ShownPicture(image=KEPT, score=0.5, title="b"))
    ranking = Ranking(texts={"headline": "x"}, models=("models:/linker/2",), dataset="diy@v1", pictures=pictures)
    link = {"document": "GONE-DOCUMENT", "sentence": 0, "article": "0" * 64, "note": "GONE-NOTE"}
    forget = partial(forget_on_pages, address, ["GONE-DOCUMENT"], [GONE])
    engine = open_database(address)
    with Store(engine) as log:
        label = log.decide(Decision(action=Action.FITS, image=GONE, **link, **of))
        log.decide(Decision(action=Action.CHOOSE, image=GONE, **of), ranking)
        log.decide(Decision(action=Action.REJECT, image=KEPT, reason="quality", **of), ranking)
        log.keep_article(Article(texts={"headline": "GONE-TEXT"}, origin="diy@v1 GONE-DOCUMENT"))
        before = list(log.decisions())
        of_older_release = plain(label) | {"number": 9, "action": "wrong"}  # a judgement of a link
        with connected(engine, is_writing=True) as connection:
            connection.execute(DECISIONS.insert().values(of_older_release))
        assert list(log.decisions()) == before and log.latest(9) == before[::-1]
        assert forget(is_dry_run=True) == 5 and list(log.decisions()) == before
        assert (forget(is_dry_run=False), forget(is_dry_run=False)) == (5, 0)
        after = list(log.decisions())
        assert [each.action for each in after] == [each.action for each in before] and after[2] == before[2]
        assert after[0].image == after[1].image and after[0].document.startswith("forgotten-")
        assert [each.title for each in log.rankings([ranking.digest])[ranking.digest].pictures] == ["forgotten", "b"]
    with engine.connect() as connection:
        found = repr([connection.execute(table.select()).all() for table in METADATA.sorted_tables]).encode()
    found += b"".join(path.read_bytes() for path in tmp_path.glob("pages/*"))
    assert b"forgotten" in found and not [word for word in WORDS if word.encode() in found]
    with pytest.raises(sql.exc.DatabaseError, match="only grows"), engine.begin() as connection:
        connection.exec_driver_sql("UPDATE decisions SET who = 'x'")
    engine.dispose()
