"""What a model links where no link is known: its loss, the widest documents, their pictures and concepts."""

from pathlib import Path

import lakes

from schemas.documents import Split
from schemas.lake import Lake
from schemas.manifest import read_manifest
from training.data.lake import Columns, read_split
from training.evaluation.judge import judge_model
from training.model import LinkModel
from training.report.examples import example_groups


def test_examples_of_an_evaluation_show_the_concepts_of_their_images(trained: Path, tmp_path: Path) -> None:
    lake: Lake = lakes.write_lake(tmp_path / "lake", lakes.splits(test=8), is_rich=True)
    manifest, folder = read_manifest(lake, "synthetic")
    evaluation = judge_model(LinkModel.load(trained), lake, "synthetic").evaluation
    documents = read_split(manifest, folder, Split.TEST, Columns(regions="boxes-test"))
    regions = documents.regions
    groups = example_groups(evaluation, manifest, folder, Split.TEST, regions="boxes-test")
    assert sum(map(len, groups.values())) > 2
    for shown in (each for group in groups.values() for each in group):
        row = documents.ids.index(shown.id)
        for image, found in zip(documents.image_rows[documents.images.rows(row)], shown.concepts, strict=True):
            assert found == tuple(dict.fromkeys(regions.labels[regions.images.rows(image)]))[:3] != ()
    without = example_groups(evaluation, manifest, folder, Split.TEST)
    assert not any(each.concepts for group in without.values() for each in group)
