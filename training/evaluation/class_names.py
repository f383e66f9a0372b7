"""The model `class-names`: for who has trained nothing. A picture is what its classes are called (ConSE, 2014).

Both of its maps are the identity: a sentence is its encoder's vector, a picture the vector of the names of its classes,
which an extractor gives among those of sentences (a column `NETWORK-names`).
"""

from __future__ import annotations

import torch

from schemas.errors import UsageError
from schemas.features import NAMES, NAMES_ENCODER
from schemas.manifest import Manifest
from schemas.overrides import override
from training.data.loading import DatasetIdentity
from training.model import LinkModel, ModelCard
from training.recipes import closed_form

CLASS_NAMES = "class-names"
NETWORK, DIMENSIONS = "efficientnet-lite0", 512  # whose classes are named, where no data set says which


def class_names_model(pictures: str = NETWORK + NAMES) -> LinkModel:
    """Return the model of a column of pictures."""
    columns = [f"data.sentence_features={NAMES_ENCODER}", f"data.image_features={pictures}"]
    identity = DatasetIdentity(
        dataset=CLASS_NAMES,
        version="0",
        manifest_digest="",
        image_features=pictures,
        image_dimensions=DIMENSIONS,
        sentence_features=NAMES_ENCODER,
        sentence_dimensions=DIMENSIONS,
    )
    config = override(closed_form(), [f"recipe={CLASS_NAMES}", f"dimensions={DIMENSIONS}", "link.steps=", *columns])
    model = LinkModel(ModelCard(config=config, data=identity), None).eval()
    for tower in (model.text, model.image):
        tower.set_map(torch.eye(DIMENSIONS), torch.zeros(DIMENSIONS))
    return model


def named_columns(manifest: Manifest) -> tuple[str, str]:
    """Return the sentence and the image column of a data set version that are compared.

    Raises:
        UsageError: it has none.
    """
    size, images = manifest.extractors("documents").get(NAMES_ENCODER), manifest.extractors("images")
    pictures = sorted(name for name in images if name.endswith(NAMES) and images[name] == size)
    if not pictures:
        wanted = f"features.images=...,{NETWORK}{NAMES} and features.sentences={NAMES_ENCODER}"
        raise UsageError(f"the data set has no vectors of class names; build it with {wanted}")
    return NAMES_ENCODER, pictures[0]
