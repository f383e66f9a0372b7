"""The recipe `joint-embeddings`: two columns of one model, compared as they are by a model like any other."""

from pathlib import Path

import lakes
import numpy as np
import pytest

from schemas.errors import ConfigError, MultilinkError, UsageError
from schemas.overrides import override
from training.data.loading import load_training_data
from training.data.ragged import unit_rows
from training.loop.context import Context
from training.loop.trainer import train
from training.model import LinkModel
from training.recipes import recipe


@pytest.fixture
def trained(tmp_path: Path):  # type: ignore[no-untyped-def]
    def made(sentence: int, image: int, *settings: str):  # type: ignore[no-untyped-def]
        world = lakes.World(text_dimensions=sentence, image_dimensions=image)
        lake = lakes.write_lake(tmp_path / "lake", lakes.splits(world, train=12, val=12), world=world)
        config = override(recipe("joint-embeddings"), settings)
        data = load_training_data(lake, "synthetic", config.reading)
        result = train(config, data, Context(), run_directory=tmp_path / "run")
        return LinkModel.load(result.model), lakes.whole(data.validation)

    return made


def test_similarities_are_the_cosines_of_the_vectors(trained) -> None:  # type: ignore[no-untyped-def]
    model, documents = trained(8, 8, "link.steps=", "dimensions=10")
    texts, images = (unit_rows(each, np.float64) for each in (documents.sentence_vectors, documents.image_bank))
    for found, rows, places in zip(model.similarities(documents), documents.sentences, documents.images, strict=True):
        np.testing.assert_allclose(found, texts[rows] @ images[documents.image_rows[places]].T, atol=1e-5)


@pytest.mark.parametrize(
    ("sizes", "error", "found"),
    [((8, 6), UsageError, "8 numbers, image vectors 6"), ((12, 12), ConfigError, "set dimensions=12")],
)
def test_columns_that_do_not_fit_are_refused(  # type: ignore[no-untyped-def]
    trained, sizes: tuple[int, int], error: type[MultilinkError], found: str
) -> None:
    with pytest.raises(error, match=found):
        trained(*sizes, "dimensions=10")
