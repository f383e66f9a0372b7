"""Models that earlier versions saved are read as they were: configuration, weights, digest and what they say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from schemas.configs import resolve
from schemas.documents import Link, Role, Split
from schemas.overrides import flatten
from training.data.loading import load_training_data
from training.model import LinkModel

SAVED = Path(__file__).resolve().parents[1] / "fixtures" / "models" / "format-2"
# Written down when they were saved: the model's digest and the sums of the first documents' similarities.
KNOWN = {
    "sum": ("a0b553b37fd020ba", [-9.201508522033691, -4.9638671875, -14.98073673248291]),
    "pairs": ("f9842c9a3df00f10", [0.2650594711303711, -0.06978718936443329, 0.4448930323123932]),
    "sources": ("781b3085ba36ad4b", [-0.13499116897583008, -0.12830476462841034, -0.015227947384119034]),
}
SETTINGS = {
    "sum": {
        "objective.name": "cross-document+intra-document+dropout-subdocument",
        "objective.cross-document.similarity.name": "tk",
        "objective.dropout-subdocument.similarity.k": "half",
        "objective.intra-document.k": "half",
        "objective.intra-document.combine": "mean",
        "image.name": "region-concept",
    },
    "pairs": {"objective.name": "hal+coherence", "objective.hal.alpha": 20.0, "objective.coherence.relations": "all"},
    "sources": {"objective.name": "triplet-sum", "text.name": "multi-source", "text.fuser.name": "max"},
}


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_a_model_of_format_2_is_what_it_was(name: str, lakes: ModuleType, tmp_path: Path) -> None:
    model = LinkModel.load(SAVED / name)
    digest, sums = KNOWN[name]
    assert model.digest().startswith(digest)
    found = flatten(resolve(model.card.config))
    assert {key: found[key] for key in SETTINGS[name]} == SETTINGS[name]

    is_pair = name != "sum"
    world = lakes.World(sentences=(1, 1), images=(1, 1)) if is_pair else lakes.World()
    made = lakes.make_documents(Split.TRAIN, 12, world)
    made = lakes.with_roles(lakes.with_relations(made) if is_pair else made, [Role.CAPTION])
    shown = [
        replace(
            document,
            images=made.documents[number - number % 3].images,
            links=document.links if is_pair else (Link(0, 0),),
        )
        for number, document in enumerate(made.documents)
    ]
    lake = lakes.write_lake(str(tmp_path), {Split.TRAIN: replace(made, documents=tuple(shown))}, shards=3, is_rich=True)
    documents = lakes.whole(load_training_data(lake, "synthetic", model.card.config).training)
    assert [float(matrix.sum()) for matrix in model.similarities(documents)[:3]] == pytest.approx(sums, abs=1e-4)

    again = tmp_path / "again"
    model.save(again)
    newer = LinkModel.load(again)
    assert newer.card == model.card
    assert all(value.equal(newer.state_dict()[key]) for key, value in model.state_dict().items())
