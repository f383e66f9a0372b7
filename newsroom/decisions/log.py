"""The log of decisions: tables that only grow, in the database of the pages (`newsroom.decisions.database`).

    rankings     digest, article, ranking (JSON)        a list of pictures, stored once for all decisions on it
    decisions    number, at, who, action, image ...     a row a decision; of a blind one the two models, and whose the
                                                        picture is

The database itself refuses changes: triggers end every UPDATE and DELETE. A decision is on the disk
when `decide` returns.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any, Self

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Engine,
    Index,
    Integer,
    MetaData,
    Select,
    String,
    Table,
    Text,
    and_,
    case,
    func,
    literal,
    or_,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError

from newsroom.decisions.database import database_in, make_tables, open_database
from newsroom.decisions.records import Action, Decision, Objection, Ranking
from schemas.configs import restore
from schemas.documents import Role
from schemas.errors import BuildError, UsageError, without_passwords
from schemas.versions import plain
from training.metrics.preference import Preference

READ_AT_ONCE = 500
BEGINNING = 120  # characters of an article
_TABLES = MetaData()
RANKINGS = Table(
    "rankings",
    _TABLES,
    Column("digest", String(64), primary_key=True),
    Column("article", String(64), nullable=False),
    Column("ranking", JSON, nullable=False),
)
DECISIONS = Table(
    "decisions",
    _TABLES,
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("at", String(32), nullable=False),
    Column("who", Text, nullable=False),
    Column("action", String(16), nullable=False),
    Column("image", String(64), nullable=False),
    Column("dataset", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("document", Text, nullable=False),
    Column("sentence", Integer),
    Column("reason", String(32)),
    Column("note", Text, nullable=False),
    Column("ranking", String(64), nullable=False),
    Column("article", String(64), nullable=False),
    Column("title", Text, nullable=False),
    # Of a blind decision: the two models, and whose the picture is, -1 the champion's, 1 the challenger's.
    Column("champion", Text),
    Column("challenger", Text),
    Column("side", Integer),
    Index("decisions_on_pictures", "article", "image", "number"),
    Index("decisions_on_links", "dataset", "document"),
    Index("decisions_between_models", "champion", "challenger"),
    sqlite_autoincrement=True,
)
_NAMES = tuple(_TABLES.tables)
_COUNTED = {"chosen": Action.CHOOSE, "listed": Action.SHORTLIST, "rejected": Action.REJECT}
_KEPT = "a log of decisions only grows"
_REFUSALS = {
    "sqlite": [
        f"CREATE TRIGGER IF NOT EXISTS {table}_no_{change} BEFORE {change} ON {table} "
        f"BEGIN SELECT RAISE(ABORT, '{_KEPT}'); END"
        for table in _NAMES
        for change in ("update", "delete")
    ],
    "postgresql": [
        "CREATE OR REPLACE FUNCTION multilink_only_grows() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{_KEPT}'; END $$",
        *(
            f"CREATE OR REPLACE TRIGGER {table}_only_grows BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION multilink_only_grows()"
            for table in _NAMES
        ),
    ],
}
_INSERT: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


class ConflictError(UsageError):
    """A decision was made on the picture that whoever decides now had not seen: `standing` is the last one, if any."""

    def __init__(self, standing: Decision | None) -> None:
        super().__init__("somebody else decided on the picture meanwhile; nothing was written")
        self.standing = standing


class DecisionLog:
    """The log in a database; a context manager. May be used by several threads, and by several processes at once.

    Raises:
        UsageError: the database has other tables of these names.
        BuildError: it does not answer, or refuses.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.name = without_passwords(engine.url.render_as_string(hide_password=False))
        with self._connected(is_writing=True) as connection:
            _prepare(connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._engine.dispose()

    def decide(self, decision: Decision, ranking: Ranking | None = None, *, after: int | None = None) -> Decision:
        """Write a decision, with the ranking in which the picture was shown, and return it as it is in the log.

        When this returns, both outlive a kill of the process.

        Args:
            decision: on a picture of the ranking, on a link, or a label.
            ranking: None for links and labels.
            after: number of the last decision on the picture that whoever decides has seen, 0: none; None: it does not
                matter. In a blind comparison, of those in that comparison.

        Raises:
            UsageError: a picture was decided on that the ranking does not have, or there is no ranking.
            ConflictError: another decision came between; nothing was written.
            BuildError: the database refused; nothing was written.
        """
        shown = None if ranking is None else next((p for p in ranking.pictures if p.image == decision.image), None)
        needs_none = decision.action.is_correction or decision.action.is_label
        if not (ranking is None if needs_none else shown is not None):
            raise UsageError(f"{decision.action}: expected a picture of the ranking on the page, or a link")
        decision = replace(decision, at=datetime.now(UTC).isoformat(timespec="milliseconds"), ranking="")
        if ranking is not None and shown is not None:
            decision = replace(decision, ranking=ranking.digest, article=ranking.article, title=shown.title)
            decision = replace(decision, dataset=ranking.dataset)  # which both are of
        with self._connected(is_writing=True) as connection:
            if ranking is not None:
                self._keep(connection, decision, ranking)
                if after is not None:
                    _check_after(connection, decision, ranking, after)
            values = {name: value for name, value in plain(decision).items() if name != "number"}
            if ranking is not None and ranking.is_blind and shown is not None:
                champion, challenger = ranking.models
                side = 1 if shown.model == challenger else -1
                values |= {"champion": champion, "challenger": challenger, "side": side}
            (number,) = connection.execute(DECISIONS.insert().values(values)).inserted_primary_key or (0,)
        return replace(decision, number=number)

    def _keep(self, connection: Connection, decision: Decision, ranking: Ranking) -> None:
        """Write a ranking that is not there yet. From here on, nobody else decides on a picture of this article."""
        if connection.dialect.name == "postgresql":  # SQLite has one writer, from its first INSERT on
            connection.execute(text("SELECT pg_advisory_xact_lock(hashtext(:article))"), {"article": decision.article})
        values = {"digest": decision.ranking, "article": decision.article, "ranking": plain(ranking)}
        connection.execute(_INSERT[connection.dialect.name](RANKINGS).on_conflict_do_nothing(), values)

    def decisions(self, *, article: str = "", after: int = 0) -> Iterator[Decision]:
        """Yield decisions in order, of one article or of all; a few hundred are in memory at a time.

        Args:
            article: its digest; empty: of all.
            after: the number of the last decision that is not wanted.
        """
        wanted = select(DECISIONS)
        return self._decisions(wanted.where(DECISIONS.c.article == article) if article else wanted, after)

    def compared(self, article: str, models: tuple[str, ...]) -> Iterator[Decision]:
        """Yield the blind decisions on an article in comparisons of two models, in order."""
        wanted = select(DECISIONS).where(DECISIONS.c.article == article, *_between(models))
        return self._decisions(wanted, 0)

    def won(self) -> list[tuple[str, str, str, Preference]]:
        """Return champion, challenger, NAME@VERSION and the articles that each won, by the last choices of each pair.

        One query counts them, a row an article. An article counts once of each version that was searched.
        """
        each = _won(by_version=True)
        names = [each.champion, each.challenger, each.dataset]
        wanted = select(*names, *_kinds(each)).group_by(*names).order_by(*names)
        with self._connected() as connection:
            found = [(*row[:3], _preference(row[3:])) for row in connection.execute(wanted)]
        return [of for of in found if of[3].articles]

    def preferred(self, first: str, second: str) -> Preference:
        """Return the articles that two models won, whichever of them was the champion; an article counts once."""
        each = _won(by_version=False)
        is_as_named = and_(each.champion == first, each.challenger == second)
        is_swapped = and_(each.champion == second, each.challenger == first)
        lead = func.sum(case((is_as_named, each.lead), else_=-each.lead)).label("lead")
        counts = [func.sum(each[name]).label(name) for name in _COUNTED]
        articles = select(lead, *counts).where(or_(is_as_named, is_swapped)).group_by(each.article)
        with self._connected() as connection:
            return _preference(connection.execute(select(*_kinds(articles.subquery().c))).one())

    def corrections(self, dataset: str, documents: Iterable[str]) -> Iterator[Decision]:
        """Yield the corrections of links of some documents of a version (NAME@VERSION), in order of each document."""
        wanted = sorted(set(documents))
        of_links = DECISIONS.c.action.in_([Action.RIGHT, Action.WRONG])
        for start in range(0, len(wanted), READ_AT_ONCE):
            some = DECISIONS.c.document.in_(wanted[start : start + READ_AT_ONCE])
            yield from self._decisions(select(DECISIONS).where(DECISIONS.c.dataset == dataset, some, of_links), 0)

    def latest(self, count: int, *, before: int | None = None, containing: str = "") -> list[Decision]:
        """Return the last `count` decisions, or the last before a number, the newest first.

        Args:
            count: at most so many.
            before: a number.
            containing: a text that the title, the note, the name of who decided or the document has.
        """
        wanted = select(DECISIONS) if before is None else select(DECISIONS).where(DECISIONS.c.number < before)
        if containing:
            columns = (DECISIONS.c[name] for name in ("title", "note", "who", "document"))
            wanted = wanted.where(or_(*(column.icontains(containing, autoescape=True) for column in columns)))
        with self._connected() as connection:
            rows = connection.execute(wanted.order_by(DECISIONS.c.number.desc()).limit(count)).mappings().all()
        return [_decision(row) for row in rows]

    def _decisions(self, wanted: Select[Any], after: int) -> Iterator[Decision]:
        ordered = wanted.order_by(DECISIONS.c.number).limit(READ_AT_ONCE)
        while True:
            with self._connected() as connection:
                rows = connection.execute(ordered.where(DECISIONS.c.number > after)).mappings().all()
            yield from map(_decision, rows)
            if len(rows) < READ_AT_ONCE:
                return
            after = rows[-1]["number"]

    def decided(self, articles: Iterable[str]) -> set[str]:
        """Return those of some articles (digests) on whose pictures somebody decided."""
        wanted = select(DECISIONS.c.article).where(DECISIONS.c.article.in_(sorted({*articles}))).distinct()
        with self._connected() as connection:
            return {*connection.execute(wanted).scalars()}

    def rankings(self, digests: Iterable[str]) -> dict[str, Ranking]:
        """Return rankings by their digests; what is not in the log is left out."""
        wanted = sorted(set(digests))
        found: dict[str, Ranking] = {}
        for start in range(0, len(wanted), READ_AT_ONCE):
            some = RANKINGS.c.digest.in_(wanted[start : start + READ_AT_ONCE])
            with self._connected() as connection:
                for row in connection.execute(select(RANKINGS).where(some)):
                    found[row.digest] = restore(Ranking, row.ranking)
        return found

    def subjects(self, digests: Iterable[str]) -> dict[str, tuple[str, str]]:
        """Return the beginning of the article of each ranking, and the address of the page that showed it."""
        texts = RANKINGS.c.ranking["texts"]
        given = func.coalesce(*(texts[str(role)].as_string() for role in Role), "")
        wanted = select(RANKINGS.c.digest, func.substr(given, 1, BEGINNING), RANKINGS.c.ranking["query"].as_string())
        with self._connected() as connection:
            rows = connection.execute(wanted.where(RANKINGS.c.digest.in_(sorted({*digests})))).all()
        return {digest: (beginning, query or "") for digest, beginning, query in rows}

    @contextmanager
    def _connected(self, *, is_writing: bool = False) -> Iterator[Connection]:
        """Give a connection, in a transaction that is committed where something is written."""
        try:
            with self._engine.begin() if is_writing else self._engine.connect() as connection:
                yield connection
        except SQLAlchemyError as problem:
            cause = str(getattr(problem, "orig", None) or problem).splitlines()[0]
            raise BuildError(f"log of decisions {self.name}: {cause}") from problem


def _prepare(connection: Connection) -> None:
    """Make the tables where they are not there, and see that those that are there are these."""
    found, dialect = make_tables(connection, _TABLES), connection.dialect.name
    if len(found) < len(_TABLES.tables) or dialect == "sqlite":  # of PostgreSQL, one transaction made all of it
        for statement in _REFUSALS[dialect]:
            connection.execute(text(statement))


@contextmanager
def changing_rows(engine: Engine) -> Iterator[Connection]:
    """Give a connection that may change what is in the log, in one transaction: what is to be forgotten goes so."""
    with engine.begin() as connection:
        is_sqlite = engine.dialect.name == "sqlite"
        for table in _NAMES:
            if is_sqlite:
                connection.execute(text(f"DROP TRIGGER IF EXISTS {table}_no_update"))
            else:
                connection.execute(text(f"ALTER TABLE {table} DISABLE TRIGGER {table}_only_grows"))
        yield connection
        for table in () if is_sqlite else _NAMES:
            connection.execute(text(f"ALTER TABLE {table} ENABLE TRIGGER {table}_only_grows"))
        for statement in _REFUSALS["sqlite"] if is_sqlite else ():
            connection.execute(text(statement))


def _check_after(connection: Connection, decision: Decision, ranking: Ranking, after: int) -> None:
    """Raise a `ConflictError` where the last decision on the picture is another than the one that was seen."""
    last = select(DECISIONS).where(DECISIONS.c.article == decision.article, DECISIONS.c.image == decision.image)
    if ranking.is_blind:
        last = last.where(*_between(ranking.models))
    row = connection.execute(last.order_by(DECISIONS.c.number.desc()).limit(1)).mappings().first()
    if (0 if row is None else row["number"]) != after:
        raise ConflictError(None if row is None else _decision(row))


def _between(models: Sequence[str]) -> tuple[ColumnElement[bool], ...]:
    return DECISIONS.c.champion == models[0], DECISIONS.c.challenger == models[1]


def _sum(condition: ColumnElement[bool], value: Any = 1) -> Any:
    return func.sum(case((condition, value), else_=0))


def _kinds(each: Any) -> tuple[Any, ...]:
    """Return the numbers of articles of a `Preference`, of rows like those of `_won`."""
    return (
        _sum(each.lead < 0),
        _sum(each.lead > 0),
        _sum(and_(each.lead == 0, each.chosen > 0)),
        _sum(and_(each.chosen == 0, each.listed == 0, each.rejected > 0)),
    )


def _preference(counts: Iterable[Any]) -> Preference:
    first, second, ties, none_fits = (int(count or 0) for count in counts)  # the sum of no row is null
    return Preference(first=first, second=second, ties=ties, none_fits=none_fits)


def _won(*, by_version: bool) -> Any:
    """Return the columns of a row an article that two models compared: what stands of the blind decisions on it.

    They are `champion`, `challenger`, `dataset` ("": of all versions together), `article`, `lead` (sides of the chosen
    pictures, summed), and how many pictures are `chosen`, `listed` and `rejected`.
    """
    row = DECISIONS.c
    pair = [row.champion, row.challenger, row.dataset if by_version else literal("").label("dataset"), row.article]
    age = func.row_number().over(partition_by=[*pair, row.image], order_by=row.number.desc())
    last = select(*pair, row.action, row.side, age.label("age")).where(row.champion > "").subquery().c
    names = [last.champion, last.challenger, last.dataset, last.article]
    lead = _sum(last.action == Action.CHOOSE, last.side).label("lead")
    counts = [_sum(last.action == action).label(name) for name, action in _COUNTED.items()]
    return select(*names, lead, *counts).where(last.age == 1).group_by(*names).subquery().c


def _decision(row: Any) -> Decision:
    values: dict[str, Any] = {each.name: row[each.name] for each in fields(Decision)}
    reason = values.pop("reason")
    return Decision(**values | {"action": Action(row["action"])}, reason=Objection(reason) if reason else None)


def opened_log(lake: str, store: str) -> DecisionLog:
    """Return the log of the pages of a lake.

    Args:
        lake: path or URI of the lake.
        store: address of the database; empty: the one in the lake.

    Raises:
        NotFoundError: the pages have not been started yet.
    """
    return DecisionLog(open_database(store or database_in(lake), must_exist=True))
