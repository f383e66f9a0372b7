"""Text tower over the vectors of frozen sentence encoders, standardised on the training split (SPEC 6)."""

from collections.abc import Iterable
from dataclasses import dataclass

from schemas.errors import UsageError
from training.data.documents import DocumentSet
from training.data.ragged import Floats
from training.parts import Needs
from training.towers.inputs import Rows, Sizes, TextInput, Tower, VectorRows, Workers, required
from training.towers.settings import TextTowerSettings
from training.towers.vectors import VectorTower


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceSettings(TextTowerSettings):
    """An affine map of the frozen vectors of sentence encoders, standardised on the training split."""

    name: str = "sentence"

    @property
    def needs(self) -> Needs:
        return Needs(sentence_vectors=True)

    @property
    def is_affine(self) -> bool:
        return type(self) is SentenceSettings  # a tower on top of it may be another map

    def build(self, sizes: Sizes, vocabulary: object) -> Tower:
        return SentenceTower(self, sizes)


class SentenceTower(VectorTower):
    """N sentences with a vector of an encoder -> N x d unit vectors.

    Raises:
        ConfigError: the data set has no such vectors.
    """

    def __init__(self, config: SentenceSettings, sizes: Sizes) -> None:
        name = f"text.name = '{config.name}'"
        features = required(sizes.sentence, tower=name, what="a sentence extractor in the data set")
        super().__init__(features, sizes.dimensions, dropout=config.dropout, standardised=True)

    def prepare(self, given: TextInput) -> Rows:
        """Return the rows of given sentence vectors; of the texts only the number counts.

        Raises:
            UsageError: there are no vectors, not one a sentence, or they have another size.
        """
        if given.vectors is None:
            raise UsageError("this model reads vectors of a sentence encoder; the documents have none")
        if len(given.vectors) != len(given.texts):
            raise UsageError(f"expected a vector for each of {len(given.texts)} sentences, found {len(given.vectors)}")
        return VectorRows.checked(given.vectors, self.features)

    def initialise(self, documents: Iterable[DocumentSet], workers: Workers, seed: int) -> None:
        self._set_moments(((_vectors(part), None) for part in documents), workers)


def _vectors(documents: DocumentSet) -> Floats:
    return required(documents.sentence_vectors, tower="the text tower", what="sentence vectors")
